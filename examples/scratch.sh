# Sourced by the examples: a scratch copy of the example prompts, removed when the script ends.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
server=
clean() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$server" ] || wait "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM
cp -r "$here/../templates" "$here/../prefixctl.yaml" "$scratch"
mkdir "$scratch/examples" && cp -r "$here/tiny-target" "$scratch/examples"
cd "$scratch"
export NO_COLOR=1 COLUMNS=120

# Show a command and its exit status, whatever it is.
try() {
  echo "\$ $*"
  status=0
  "$@" || status=$?
  [ "$status" = 0 ] || echo "(exit $status)"
}
