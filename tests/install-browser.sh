#!/bin/sh
# Installs Chromium and its driver for the browser tests. If that is not possible, the script prints one line and exits
# with 0; the browser tests are then skipped.
set -u
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-browser: no apt-get here; install chromium and chromedriver by hand for the browser tests"
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "install-browser: not root; run 'sudo $0' for the browser tests"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if apt-get update -qq >"$log" 2>&1 &&
    apt-get install -y -qq --no-install-recommends chromium chromium-driver >>"$log" 2>&1; then
    rm -f "$log"
else
    echo "install-browser: apt-get could not install chromium ($(grep -m1 '^E:' "$log" || tail -n1 "$log"))"
    rm -f "$log"
fi
