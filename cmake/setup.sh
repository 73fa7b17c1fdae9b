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

# build_preset PRESET [targets...]: configures and builds, prints the build folder.
build_preset() {
  local preset=$1 tree="$here/build/$1" log
  shift
  mkdir -p "$tree"
  log="$tree/build.log"
  say "building ($(basename "$tree"), log in build/$(basename "$tree")/build.log)"
  if ! (cd "$here" && cmake --preset "$preset" &&
        cmake --build "$tree" ${1:+--target "$@"}) >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    say "the build failed"
    exit 1
  fi
  printf '%s\n' "$tree"
}
