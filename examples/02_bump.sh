#!/bin/sh
# A changed prompt needs a version; the check says what it costs.
. "$(dirname "$0")/scratch.sh"

try prefixctl bump --check
sed -i 's/apologise once, plainly/apologise once, briefly/' templates/support-agent/system.md.j2
try prefixctl bump --check
try prefixctl bump support-agent --reason "Another tone" --author example
try prefixctl bump --check
try prefixctl diff support-agent 1 2
