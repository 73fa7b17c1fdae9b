# Shared by ./run and ./test: packages and builds. Sourced with $here = the root of the tree.
# Everything it prints goes to stderr; stdout belongs to the program.

say() { printf 'tessera: %s\n' "$*" >&2; }

# install_packages run|test: installs what packages.txt asks for and is missing.
install_packages() {
  local want missing=() name stage
  want=$1
  while read -r name stage _; do
    case "$name" in ''|'#'*) continue ;; esac
    if [ "$stage" = test ] && [ "$want" = run ]; then continue; fi
    if ! dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed'; then
      missing+=("$name")
    fi
  done <"$here/packages.txt"
  [ ${#missing[@]} -eq 0 ] && return 0

  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      sudo=(sudo)
    else
      say "missing packages, and no right to install them. Run:"
      say "  sudo apt-get install --no-install-recommends ${missing[*]}"
      exit 1
    fi
  fi
  say "installing: ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    { "${apt[@]}" update >&2 &&
      "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null; } ||
    { say "the packages could not be installed"; exit 1; }
}

# duration SECONDS: "75" as "1 min 15 s".
duration() {
  if [ "$1" -lt 60 ]; then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# show_progress LOG: keeps what ninja says in LOG and shows how far it is, with the time left by the pace so
# far: on a terminal in one line, elsewhere a line each tenth. The form of its lines is NINJA_STATUS below.
show_progress() {
  local log=$1 start=$SECONDS line percent left shown=0 text terminal=no
  [ -t 2 ] && terminal=yes
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line" >&3
    [[ $line =~ ^step\ ([0-9]+)\ of\ ([0-9]+): ]] || continue
    percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    [ "${BASH_REMATCH[1]}" -gt 0 ] && [ "$percent" -lt 100 ] || continue
    left=$(((SECONDS - start) * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
    text="$percent % built, about $(duration "$left") left"
    if [ "$terminal" = yes ]; then
      printf '\r\033[Ktessera: %s' "$text" >&2
    elif [ $((percent / 10)) -gt $((shown / 10)) ]; then
      say "$text"
      shown=$percent
    fi
  done 3>"$log"
  [ "$terminal" = no ] || printf '\r\033[K' >&2
}

# build_preset PRESET [targets...]: configures and builds, prints the build folder.
build_preset() {
  local preset=$1 tree="$here/build/$1" log start=$SECONDS
  shift
  mkdir -p "$tree"
  log="$tree/build.log"
  say "building $preset (log: build/$preset/build.log)"
  if ! (set -o pipefail
        cd "$here" && export NINJA_STATUS='step %f of %t: ' &&
        { cmake --preset "$preset" && cmake --build "$tree" ${1:+--target "$@"}; } 2>&1 |
          show_progress "$log"); then
    tail -n 40 "$log" >&2
    say "the build failed"
    exit 1
  fi
  say "built $preset in $(duration $((SECONDS - start)))"
  printf '%s\n' "$tree"
}
