# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Makes a self-contained folder of Debian's criu package: the program, its
# libraries and their loader, so that it runs on a machine with an older libc.

: "${lib:?set it to the folder of this file}"
criu_suite=trixie

# debian_keyring: prints the file with Debian's archive keys.
debian_keyring() {
    local file
    for file in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        [[ ! -r $file ]] || { echo "$file"; return 0; }
    done
    die "Debian's archive keys are missing, so no package could be verified." \
        "Install them: apt-get install debian-archive-keyring"
}

# apt_source_files: prints the files of the machine's own apt configuration.
apt_source_files() {
    local etc=/etc/apt file
    for file in "$etc/sources.list" "$etc"/sources.list.d/*.list "$etc"/sources.list.d/*.sources; do
        [[ ! -r $file ]] || echo "$file"
    done
}

# write_sources OUT FILE...: the Debian entries of FILEs, with the suite changed
# and the signing key set to Debian's; an entry of another archive that passes the
# filter on suite and component is refused by apt for its signature.
write_sources() {
    local out=$1 keyring
    shift
    keyring=$(debian_keyring) || exit 1
    awk -v suite="$criu_suite" -v keyring="$keyring" -f "$lib/debian-sources.awk" "$@" |
        sort -u >"$out"
    [[ -s $out ]]
}

# apt_private DIR TOOL ARG...: an apt tool with state, cache and sources in DIR.
# No installed package counts (empty status file): every library has to be found.
apt_private() {
    local dir=$1 tool=$2
    shift 2
    # The user _apt may have no way into the folder of this checkout.
    (cd "$dir/deb" && LC_ALL=C timeout --foreground 300 "$tool" -q \
        -o APT::Sandbox::User=root \
        -o Dir::Etc::sourcelist="$dir/debian.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State="$dir/state" -o Dir::State::lists="$dir/lists" \
        -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
        -o APT::Default-Release="" -o APT::Install-Recommends=false \
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 \
        -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false \
        -o Acquire::AllowWeakRepositories=false \
        -o Acquire::AllowDowngradeToInsecureRepositories=false \
        -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=20 \
        -o Acquire::https::Timeout=20 "$@" </dev/null)
}

# apt_failed LOG WHAT: stops with apt's own words.
apt_failed() {
    local cause
    cause=$(grep -E '^(E|W|Err|  )' "$1" | head -n 6 || true)
    die "$2. apt says:"$'\n'"${cause:-$(tail -n 3 "$1")}"
}

# fetch_packages DIR: fills DIR/deb with criu and all it depends on.
fetch_packages() {
    local dir=$1 names
    # The exit status says little: one dead mirror of several makes it fail.
    apt_private "$dir" apt-get update >"$dir/log" 2>&1 || true
    names=$(apt_private "$dir" apt-get install --simulate criu 2>>"$dir/log" |
        awk '$1 == "Inst" {print $2}') || names=
    [[ -n $names ]] || apt_failed "$dir/log" \
        "Debian's package lists for $criu_suite could not be read or have no criu (no network?)"
    # shellcheck disable=SC2086 # one word a package
    apt_private "$dir" apt-get download $names >"$dir/log" 2>&1 ||
        apt_failed "$dir/log" "a package could not be downloaded"
}

# unpack_packages DIR: unpacks DIR/deb/*.deb to DIR/root; notes names and versions.
unpack_packages() {
    local dir=$1 deb
    for deb in "$dir"/deb/*.deb; do
        dpkg-deb -x "$deb" "$dir/root"
        # shellcheck disable=SC2016 # dpkg-deb's own fields
        dpkg-deb --showformat='${Package} ${Version}\n' -W "$deb" >>"$dir/packages"
    done
}

# list_libraries DIR LOADER PROGRAM: prints the libraries that PROGRAM loads, all of
# them of DIR/root; stops if one would come from elsewhere.
list_libraries() {
    local dir=$1 where name arrow path rest listing
    where=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/lib/x86_64-linux-gnu
    listing=$("$2" --inhibit-cache --library-path "$where" --list "$3") ||
        die "the unpacked criu cannot be loaded: $listing"
    while read -r name arrow path rest; do
        [[ $arrow == "=>" ]] || continue
        [[ $path != "$2" ]] || continue
        [[ $path == "$dir/root/"* ]] ||
            die "criu needs $name, which is in none of the unpacked packages ($path $rest)"
        echo "$path"
    done <<<"$listing"
}

# fill_folder DIR OUT: copies program, loader, libraries and licences to OUT.
fill_folder() {
    local dir=$1 out=$2 loader program path libraries
    loader=$(find "$dir/root" -name ld-linux-x86-64.so.2 -type f | head -n 1)
    program=$(find "$dir/root" -path '*/sbin/criu' -type f | head -n 1)
    [[ -n $loader && -n $program ]] || die "the packages hold no criu or no loader"
    libraries=$(list_libraries "$dir" "$loader" "$program")
    mkdir -p "$out/bin" "$out/lib" "$out/doc"
    cp -L "$program" "$out/bin/criu.bin"
    cp -L "$loader" "$out/lib/ld-linux-x86-64.so.2"
    while read -r path; do
        cp -L "$path" "$out/lib/"
    done <<<"$libraries"
    for path in "$dir"/root/usr/share/doc/*/copyright; do
        cp "$path" "$out/doc/$(basename "$(dirname "$path")").copyright"
    done
    cp "$dir/packages" "$out/doc/packages"
}

# unpack_criu FOLDER FILE...: makes FOLDER from the package sources in FILEs.
unpack_criu() {
    local folder=$1 dir=$1/.apt
    shift
    rm -rf "$dir"
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$dir'" EXIT
    mkdir -p "$dir"/{deb,root,state,lists/partial,cache/archives/partial}
    : >"$dir/status"
    write_sources "$dir/debian.list" "$@" || no_debian_source "$*"
    say "fetching criu and its libraries from Debian $criu_suite ($(wc -l <"$dir/debian.list")" \
        "sources of $*)"
    fetch_packages "$dir"
    unpack_packages "$dir"
    fill_folder "$dir" "$dir/new"
    build_static "$lib/criu-launch.c" "$dir/new/criu"
    rm -rf "${folder:?}"/{bin/criu.bin,lib,doc,criu}
    mkdir -p "$folder/bin"
    mv "$dir/new/bin/criu.bin" "$folder/bin/"
    mv "$dir/new"/{lib,doc,criu} "$folder/"
    rm -rf "$dir"
    trap - EXIT
}
