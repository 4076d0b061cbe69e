#!/usr/bin/env bash
# The tests of the HTML pages need Chromium and its driver: silent if they are there, installed if this may do so, one
# clear message if not.
set -euo pipefail
source "${BASH_SOURCE[0]%/*}/lib.sh"

readonly PACKAGES=(chromium chromium-driver)

fits() {
    hash -r
    command -v chromium >/dev/null && command -v chromedriver >/dev/null
}

fits && exit 0
can_apt && apt_install "${PACKAGES[@]}" && fits && exit 0
stop "The tests of the HTML pages need chromium and chromedriver on the PATH." \
    "Install them, on Debian: sudo apt-get install ${PACKAGES[*]}"
