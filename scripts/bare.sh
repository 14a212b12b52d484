#!/usr/bin/env bash
# Runs a command as on a machine that has Rust and a C compiler and nothing else: bare.sh COMMAND…
#
# It hides OpenCL, CUDA, clang, Python, tmux, valgrind, groff, CMake, MPI, Node, browsers and emulators of other
# processors. It also hides the files that .ci/run fetches into target. The command alone runs without them, in a
# mount namespace with an overlay over /usr and /etc: nothing on the machine changes. It needs Linux with overlayfs,
# and root or sudo.
set -euo pipefail

if [ $# = 0 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi

if [ "${RUSTORCH_BARE:-}" != 1 ]; then
    sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo --preserve-env)
    exec "${sudo[@]}" unshare --mount --propagation private env RUSTORCH_BARE=1 "PATH=$PATH" "$0" "$@"
fi
unset RUSTORCH_BARE
shopt -s nullglob

layers=$(mktemp -d)
mount -t tmpfs tmpfs "$layers"

# Files under FOLDER can be removed from now on, for this namespace alone.
overlay() {
    local layer=$layers/${1//\//-}
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" "$1"
}

overlay /usr
overlay /etc
rm -rf /etc/OpenCL /usr/lib/*/pocl
for library in OpenCL pocl clang cuda nvidia-ml; do
    rm -f /usr/{lib,lib/*,local/lib}/lib$library[.0-9-]*
done
for program in clang clang++ python python3 pip pip3 tmux valgrind groff cmake mpirun mpiexec node npm chromium \
    google-chrome firefox qemu-aarch64 aarch64-linux-gnu-gcc; do
    rm -f /usr/{,local/}bin/$program /usr/{,local/}bin/$program-[0-9]* /usr/{,local/}bin/$program[0-9.]* \
        /usr/lib/llvm-*/bin/$program
done

# Programs that were installed elsewhere are on the path: folders with an interpreter of Python or Node are left out.
path=
while read -rd: folder; do
    [ -e "$folder/python3" ] || [ -e "$folder/node" ] || [ -e "$folder/clang" ] || path+=${path:+:}$folder
done <<< "$PATH:"
export PATH=$path

empty=$layers/empty
mkdir "$empty"
for folder in target/vocabs target/coremltools target/models; do
    [ ! -d "$folder" ] || mount --bind "$empty" "$folder"
done
unset RUSTORCH_COREMLTOOLS RUSTORCH_CLANG RUSTORCH_CHAT_TEMPLATES
for variable in "${!RUSTORCH_TEST_@}"; do
    case $variable in
        RUSTORCH_TEST_FULL | RUSTORCH_TEST_SEED) ;;
        *) unset "$variable" ;;
    esac
done
exec "$@"
