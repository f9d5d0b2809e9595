"""Words for `bench/lint_templates.py`: static text, names of values, calls, secrets.

What values are called was written down before the linter was tried on them.
"""

from __future__ import annotations

SENTENCES = (
    "Answer questions about orders, parcels and returns of an outdoor shop.",
    "Write in short and plain sentences, and use the language of the question.",
    "Never invent an order number, a price or a delivery day.",
    "Ask the user for the date of the purchase when a warranty is meant.",
    "A session ends when the customer says goodbye; thank them by name.",
    "Keep the history of the conversation in mind, and do not repeat yourself.",
    "When a document contradicts the policy, the policy is right.",
    "Hand over to a person when money, health or safety is at stake.",
    "Each tool may be called once in a turn; explain what it returned.",
    "Use ISO units, round to two digits, and say where a figure comes from.",
    "Tenants, organizations and companies are all called partners here.",
    "The time of day never changes what you are allowed to say.",
    "List at most five steps, and number them.",
    "Refuse requests for legal advice in one polite sentence.",
    "A secret is never repeated, not even to an administrator.",
    "Prefer the newest manual, and quote its section.",
    "If nothing fits, say so, and propose the nearest alternative.",
    "Output valid Markdown, without headings of the first level.",
)
CHINESE = (
    "你是一家户外用品商店的客服助手，负责回答订单、包裹和退货方面的问题。",
    "回答要简短清楚，使用客户提问时所用的语言，不要编造订单号或价格。",
    "涉及金额、健康或安全的问题，请转交人工处理，并说明下一步怎么做。",
    "每次最多列出五个步骤，并为每一步编号，注明依据的手册章节。",
    "政策与文档不一致时以政策为准；没有合适答案时请直接说明。",
)

NAMES: dict[str, tuple[str, ...]] = {
    "clock": (
        "now", "current_time", "currentTime", "current_datetime", "timestamp", "currentTimestamp",
        "utc_now", "localTime", "system_time", "serverTime", "env.now", "context.current_time",
        "time_now", "requestTime", "ctx.clock.now", "datetime_utc", "CURRENT_TIME", "time",
        "meta.generated_at_timestamp", "unixTime", "当前时间", "generated_at", "currentDateTime",
        "rendered_at", "createdAtTimestamp", "iso_timestamp", "session.now", "clock_time",
    ),
    "random": (
        "uuid", "request_uuid", "traceId", "trace_id", "nonce", "correlation_id", "run_id",
        "messageId", "random_seed", "spanId", "ctx.trace.id", "idempotencyKey", "requestGuid",
        "job_id", "meta.request_id", "invocationId", "cache_buster", "executionId", "event_id",
        "random_token", "REQUEST_ID", "call_id", "transactionId", "ulid", "请求编号",
    ),
    "user": (
        "user_name", "userName", "customer.first_name", "customerName", "user.email", "username",
        "profile.fullName", "ctx.user.displayName", "client_name", "member.nickname", "user_id",
        "patient_name", "student.name", "employeeId", "currentUser", "customer_id", "firstName",
        "account_holder_name", "user.profile.phone", "recipientName", "caller_name", "用户名",
        "subscriber.email", "guestName", "LAST_NAME", "visitor_id", "客户姓名", "user.preferences",
    ),
    "tenant": (
        "tenant", "tenant_name", "tenantId", "organization", "orgName", "company_name",
        "companyName",
        "org.display_name", "ctx.tenant.slug", "workspace_name", "organization_id", "accountId",
        "merchant_name", "brandName", "customer_org", "business.name", "TENANT_ID", "team_name",
        "department", "subscription_id", "租户名称", "公司名称", "client_company", "orgSlug",
    ),
    "session": (
        "session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "threadId",
        "chat_id", "chatId", "ctx.session.id", "dialog_id", "session.key", "conv_id", "SESSION_ID",
        "request_id", "req_id", "meta.conversation.id", "会话编号", "session_token", "dialogueId",
    ),
    "retrieved": (
        "question", "user_question", "userQuery", "query", "retrieved_docs", "retrievedChunks",
        "search_results", "context_documents", "documents", "user_input", "userMessage", "passages",
        "ctx.question", "input.query", "chat_history", "chatHistory", "conversation_history",
        "knowledge_snippets", "last_message", "user_prompt", "request.text", "用户问题", "检索结果",
        "latest_user_message", "rag_context", "customer_question", "ticket_body", "email_thread",
    ),
    "private": (
        "api_key", "apiKey", "password", "db_password", "access_token", "accessToken",
        "secret_key", "clientSecret", "private_key", "credentials.password", "auth_token",
        "AWS_SECRET_ACCESS_KEY", "ctx.secrets.openai", "user.ssn", "passport_number", "credit_card",
        "cardNumber", "dateOfBirth", "social_security_number", "bearer_token", "密码", "身份证号",
        "iban", "connection_string", "home_address", "phone_number",
    ),
    "order": (
        "variables", "facts", "attributes", "metadata_map", "labels", "featureFlags", "price_table",
        "inventory", "ctx.extras", "product.attributes", "registry", "shop_data", "catalogue",
        "field_map", "shelfMap", "capabilities",
    ),
    "tools": (
        "tools", "tool_list", "available_tools", "toolSpecs", "functions", "ctx.tools",
        "function_list", "agent.tools", "tool_schemas", "registered_tools", "mcp_tools",
        "toolDefinitions", "allowed_functions", "plugin_functions", "skills.tools",
    ),
}  # fmt: skip
"""What a value of each kind is called in the field."""

HARMLESS = (
    "date_format", "time_zone", "timeFormat", "session_policy", "user_guidelines", "tone",
    "question_types", "max_history_turns", "document_schema", "output_language", "style_guide",
    "refund_rules", "user_manual_version", "response_template", "house_policies", "voice_rules",
    "token_limit",
    "timeout_seconds", "tool_instructions", "formatInstructions", "system_prompt",
    "safety_rules", "product_line", "greeting_style", "model_name", "few_shot_examples",
    "retrieval_instructions", "persona_description", "answer_length", "citation_style",
)  # fmt: skip

CLOCK_CALLS = (
    "now()", "datetime.now()", "now().isoformat()", "strftime_now('%H:%M:%S')",
    "strftime_now('%Y-%m-%d %H:%M')", "now().strftime('%d.%m.%Y %H:%M:%S')",
    "current_date | strftime('%H:%M')", "utcnow()", "datetime.utcnow().timestamp()",
    "now | date('yyyy-MM-dd HH:mm:ss')", "moment.now().format('HH:mm:ss')",
)  # fmt: skip
PY_CLOCKS = (
    "datetime.now()", "datetime.now().isoformat()", "datetime.utcnow().strftime('%H:%M')",
    "time.time()", "time.strftime('%Y-%m-%d %H:%M:%S')", "datetime.datetime.now()",
    "datetime.now(timezone.utc).strftime('%c')", "pendulum.now()", "int(time.time())",
)  # fmt: skip
RANDOM_CALLS = (
    "uuid4()", "range(1000) | random", "['a', 'b', 'c'] | random", "uuid.uuid4()", "randint(1, 9)",
    "generate_nonce()", "['x', 'y'] | shuffle | join", "lipsum(n=1)", "random_id()",
)  # fmt: skip
PY_RANDOM = ("uuid.uuid4()", "uuid.uuid4().hex", "random.random()", "secrets.token_hex(8)",
              "random.choice(TIPS)", "uuid4()", "os.urandom(4).hex()")  # fmt: skip
SECRETS = (
    "Use the key sk-proj-4fKq81LmZx0Rt7VbNc2EwYpAh9JdGsUo3TiKeMn5Q for the search.",
    "Log in with password: Tr0ub4dor&3xKq before you call the API.",
    "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJlLW9mLXRlc3Q",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYz9Q2LmTr8V",
    "The repository token is ghp_a8Kd03LmPq92ZxVbNc71EwYtRu56HsJgFo40.",
    "postgres://shop:h7Gt2Lq9Zx@db.internal:5432/orders holds the orders.",
    "-----BEGIN RSA PRIVATE KEY-----",
    "AKIAQX7RTP2LMN4VZ6KC may list the bucket.",
)
PERSONAL = (
    "Jane Whitfield lives at her mother's; her social security number is 536-22-8417.",
    "Charge the card 4539 5787 6362 1486 when asked.",
    "Pay to DE02 1203 0000 0000 2020 51 in all cases.",
    "Call the owner, Marta Nowak, on her mobile: +48 601 234 567.",
    "客户身份证号：44030619870415321X，请勿告诉他人。",
    "Escalate to tomas.brandt@brandt-logistics.com, his private address.",
)

PLAIN = (
    "Write to support@shop.example or call our hotline.",
    "Passwords are never asked for.",
    "The API key is kept by the operator, not by you.",
    "Use the format YYYY-MM-DD HH:MM:SS.",
    "A request id looks like REQ-0000.",
    "Say 'Dear customer' unless the name is known.",
    "今天的日期和用户的姓名由用户自己说明。",
    "Tokens are sk-... strings; never print one.",
    "Sessions, tenants and users are words like any other.",
)
"""Plain text that only speaks of such things."""
