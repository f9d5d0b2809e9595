#!/bin/sh
# Where does the shared prefix end, and who ends it?
. "$(dirname "$0")/scratch.sh"

try prefixctl lint
try prefixctl lint templates/bad/clock_second.j2 templates/bad/tenant_first.j2 templates/bad/question_first.j2
