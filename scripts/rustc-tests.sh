#!/usr/bin/env bash
# A compiler for `RUSTC_WORKSPACE_WRAPPER`, which compiles tests, and the program `replay`, which only they
# run here, without optimising them, or little: that is a third of the time that all takes. What they test is another
# crate, and optimised. `.ci/run` sets it for the README's command.
set -euo pipefail
source "${BASH_SOURCE%/*}/lib-rustc.sh"

# Tests that compute much themselves.
computing=" rustorch_cpu rustorch_cpu_tests rustorch_math rustorch_quant rustorch_reference "
# Tests that count instructions.
counting=" instructions "

level=
if [[ $crate == replay ]]; then
    level=0
elif [[ -n $tests && $computing == *" $crate "* ]]; then
    level=1
elif [[ -n $tests && $counting != *" $crate "* ]]; then
    level=0
fi
exec "$@" ${level:+-C opt-level=$level}
