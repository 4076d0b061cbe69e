# What Maven builds, kept in a cache. Sourced, not run; lib.sh comes before it. It uses only tools of a bare machine.

has_maven() {
    hash -r
    command -v mvn >/dev/null
}

# built DIRECTORY SOURCE...: is the directory there, made of just these sources?
built() {
    local directory=$1 source
    shift
    for source; do
        [[ -f ${directory}/${source##*/} && $(<"${directory}/${source##*/}") == "$(<"${source}")" ]] || return 1
    done
}

# build WHAT DIRECTORY POM [SOURCE...] -- GOAL...: have Maven make the directory, in which copies of its sources lie too.
# Silent if it was made of the same sources. Installs Maven if it is missing and this may do so. The goals write where the
# property DIRECTORY_OPTION says: set it to its name. One clear message if anything fails.
build() {
    local what=$1 directory=$2 pom=$3 sources=() cache=${2%/*} log
    shift 2
    while [[ $1 != -- ]]; do
        sources+=("$1")
        shift
    done
    shift
    log=${cache}/maven.log
    built "${directory}" "${sources[@]}" && return 0
    if ! has_maven && ! { can_apt && apt_install maven && has_maven; }; then
        stop "${what^} are fetched by Maven; found no mvn on the PATH." \
            "Install it, on Debian or Ubuntu: sudo apt-get install maven"
    fi
    mkdir -p "${cache}"
    exec 9>"${cache}/lock"
    flock 9 # of two that build at once, the second finds it built
    built "${directory}" "${sources[@]}" && return 0
    fetch() {
        mvn --batch-mode --file "${pom}" "$@" "-D${DIRECTORY_OPTION}=${PWD}/${directory}.part" >"${log}" 2>&1
    }
    rm -rf "${directory}" "${directory}.part"
    if ! timed "fetching ${what} into ${directory}, a minute the first time" fetch "$@"; then
        tail -n 20 "${log}" >&2
        stop "Maven could not fetch ${what}; the whole output is in ${log}."
    fi
    cp "${sources[@]}" "${directory}.part/"
    mv "${directory}.part" "${directory}"
}
