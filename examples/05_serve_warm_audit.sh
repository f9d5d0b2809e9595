#!/bin/sh
# A real vLLM on the CPU: serve, warm every live prefix, probe two tenants.
. "$(dirname "$0")/scratch.sh"

port=$(python3 -c "from prefixctl.engine.launch import free_port; print(free_port())")
url=http://127.0.0.1:$port
python3 -m prefixctl.vllm_plugin.tiny_model examples/tiny-target --size 5m --dtype float32 2>/dev/null
sed -i 's/    block_size: 32/    block_size: 32\n    dtype: float32/' prefixctl.yaml
cat >> prefixctl.yaml <<END
server: {max_model_len: 8192, kv_cache_gib: 1, extra_args: ["--enforce-eager"]}
END
export PREFIXCTL_SECRET=an-example-secret-of-32-characters

# The weights are new, so the keys are: every prompt gets a version for them.
try prefixctl bump --reason "Weights made on the spot" --author example
try prefixctl publish --all
prefixctl serve tiny --port "$port" > server.log 2>&1 &
server=$!
until curl -fs "$url/health" > /dev/null; do
  kill -0 "$server" 2>/dev/null || { tail server.log; exit 1; }
  sleep 1
done
try prefixctl warm --server "$url" --tenant shop
try prefixctl warm --server "$url" --tenant shop
try prefixctl audit probe --server "$url" --rounds 1 --no-salts
try prefixctl audit probe --server "$url" --rounds 1
