# SPDX-License-Identifier: LGPL-2.1-or-later
# Reads apt source files of both formats (deb822 .sources, one-line .list) and
# prints the entries of a Debian archive as one-line entries for another suite.
#
#   -v suite=NAME     the suite to name instead of the machine's own
#   -v keyring=FILE   the only keys that may sign it
#
# Of the options only check-valid-until is kept; trusted and allow-insecure would
# switch the verification off.

# The wanted suite for one of the machine's, "" if it is none of Debian's releases.
function new_suite(word,    tail) {
    sub(/\/$/, "", word)
    if (word !~ /^(bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing|unstable)(-updates|-security)?$/)
        return ""
    tail = word
    if (!sub(/^[a-z]+-/, "-", tail))
        tail = ""
    return suite tail
}

function has_word(list, word,    words, n, i) {
    n = split(list, words, /[ \t]+/)
    for (i = 1; i <= n; i++)
        if (words[i] == word)
            return 1
    return 0
}

function emit(uris, suites, components, expired,    u, s, nu, ns, i, j, name, options) {
    if (!has_word(components, "main"))
        return
    options = "signed-by=" keyring (expired ? " check-valid-until=no" : "")
    nu = split(uris, u, /[ \t]+/)
    ns = split(suites, s, /[ \t]+/)
    for (i = 1; i <= nu; i++)
        for (j = 1; j <= ns; j++) {
            name = s[j] == "" ? "" : new_suite(s[j])
            if (u[i] != "" && u[i] !~ /^cdrom:/ && name != "")
                print "deb [" options "] " u[i] " " name " main"
        }
}

function end_stanza() {
    if (has_word(field["types"], "deb") && field["enabled"] !~ /^[ \t]*(no|false|0|off)/)
        emit(field["uris"], field["suites"], field["components"],
             field["check-valid-until"] ~ /no/)
    split("", field)
}

# "deb [options] URI suite component..."
function one_line(text,    options, words, n, i, components) {
    sub(/#.*/, "", text)
    sub(/^[ \t]*deb[ \t]+/, "", text)
    if (match(text, /^\[[^]]*\][ \t]*/)) {
        options = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
    }
    n = split(text, words, /[ \t]+/)
    for (i = 3; i <= n; i++)
        components = components " " words[i]
    if (n >= 3)
        emit(words[1], words[2], components, options ~ /check-valid-until=no/)
}

FNR == 1 { end_stanza(); key = "" }
/^[ \t]*#/ { next }
/^[ \t]*$/ { end_stanza(); key = ""; next }
/^[ \t]/ && key != "" { field[key] = field[key] " " $0; next }
/^[ \t]*deb[ \t]/ { one_line($0); next }
match($0, /^[A-Za-z-]+:/) {
    key = tolower(substr($0, 1, RLENGTH - 1))
    field[key] = substr($0, RLENGTH + 1)
}
END { end_stanza() }
