#!/bin/sh
# Alert rules for a stock vLLM, with unit tests.
. "$(dirname "$0")/scratch.sh"

try prefixctl rules generate --profile day1 --out rules
try prefixctl rules test rules
