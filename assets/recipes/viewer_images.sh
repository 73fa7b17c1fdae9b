#!/usr/bin/env bash
# Makes the screenshots of docs/images on a virtual screen: viewer_images.sh BIN OUT, with the folder
# of tessera-lab and a folder for the images.
set -euo pipefail
bin=$(realpath "$1")
mkdir -p "$2"
cd "$(mktemp -d)"
out=$OLDPWD/$2
prompt="a large red shiny sphere, a small blue matte cube and a small green matte cone on a checkered floor"

shoot() { xvfb-run -a -s "-screen 0 1280x800x24" "$bin/tessera-lab" selftest "$@"; }

"$bin/tessera-lab" generate --output-dir out --seed 3 -p "a small white shiny cube and a small cyan shiny sphere on a gray floor"
"$bin/tessera-lab" generate --output-dir out --seed 4 -p "a large yellow matte cylinder on a dark floor"
cat >grow.txt <<END
size 1280 800
wait_models
seed 7
prompt $prompt
method sjd
paint
wait_rows 7
screenshot viewer.png
wait_done
END
shoot grow.txt --output-dir out -t 1
cat >compare.txt <<END
size 1280 800
wait_models
seed 1
prompt $prompt
compare exact grouped
wait_done
frames 20
screenshot viewer-compare.png
view picture
prune divprune 0.5
caption
wait_caption
tab captions
overlay visual
frames 20
screenshot viewer-caption.png
END
shoot compare.txt --output-dir out2
"$bin/tessera-lab" video -p "a large white matte cylinder and a small cyan shiny sphere moving left on a checkered floor" \
  -s 5 -o out2/moving.mkv
cat >film.txt <<END
size 1280 800
wait_models
film out2/moving.mkv
wait_film
film_seek 10
frames 20
screenshot viewer-film.png
END
shoot film.txt --output-dir out2
for image in viewer viewer-compare viewer-caption viewer-film; do
  find . -name "$image.png" -exec cp {} "$out/" \;
done
