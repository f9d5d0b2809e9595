"""An in-process `vllm.LLM` with the governed scheduler, as `prefixctl.embed` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm import SamplingParams

from prefixctl.core.governing import UTILITY
from prefixctl.core.ports import ChatRequest
from prefixctl.ids import Salt
from prefixctl.vllm_plugin import guard


def ask(llm: Any, question: str) -> str:
    """Ask the engine's desk.

    Raises:
        UngovernableError: If the engine was not made with `embed.local_arguments`.
    """
    core = llm.llm_engine.engine_core
    inner = getattr(core, "engine_core", None)
    try:
        found: str = (
            getattr(inner, UTILITY)(question)
            if inner is not None
            else core.call_utility(UTILITY, question)
        )
    except (AttributeError, RuntimeError) as error:
        raise guard.UngovernableError(
            "this engine is not governed: make it with vllm.LLM(MODEL, **local_arguments(config))"
        ) from error
    return found


def compute(llm: Any, token_ids: Sequence[int], salt: Salt | None) -> None:
    """One request that leaves the tokens in the cache."""
    prompt: dict[str, Any] = {"prompt_token_ids": list(token_ids)}
    if salt is not None:
        prompt["cache_salt"] = str(salt)
    llm.generate([prompt], SamplingParams(max_tokens=1, temperature=0.0), use_tqdm=False)


def chat(
    llm: Any, request: ChatRequest, max_tokens: int, salt: Salt | None
) -> tuple[str, int, int | None]:
    """Text, prompt tokens and cached tokens of a greedy answer."""
    tokens = llm.get_tokenizer().apply_chat_template(
        [dict(m) for m in request.messages],
        tools=None if request.tools is None else [dict(t) for t in request.tools],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    prompt: dict[str, Any] = {"prompt_token_ids": list(tokens)}
    if salt is not None:
        prompt["cache_salt"] = str(salt)
    parameters = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    (answer,) = llm.generate([prompt], parameters, use_tqdm=False)
    return answer.outputs[0].text, len(answer.prompt_token_ids), answer.num_cached_tokens
