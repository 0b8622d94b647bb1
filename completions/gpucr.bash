# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Made by gpucr-gen-docs from cli/verbs.c; change it there.

_gpucr_pids()
{
    compgen -W "$(cd /proc && echo [0-9]*)" -- "$1"
}

# Options of the command $1; of gpucr itself where it is empty.
_gpucr_options()
{
    case $1 in
    'list') echo ' --all -a --pid -p --tree -t --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'check') echo ' --pid -p --tree -t --criu --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'suspend') echo ' --pid -p --tree -t --single-process --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'resume') echo ' --pid -p --tree -t --single-process --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'checkpoint') echo ' --pid -p --tree -t --output -o --images-dir -D --leave-running -R --shell-job -j --tcp-established --file-locks -l --link-remap --ext-unix-sk -x --ghost-limit --criu --criu-option --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'restore') echo ' --images-dir -D --detach -d --restore-detached --foreground -F --pid-namespace --pid-wait --shell-job -j --tcp-established --file-locks -l --link-remap --ext-unix-sk -x --criu --criu-option --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'image inspect') echo ' --images-dir -D --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'image verify') echo ' --images-dir -D --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    'help') echo ' --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h' ;;
    '') echo ' --json --timeout --engine-timeout --force --sequential --verbose -v --quiet -q --log --driver-root --dev-root --state-dir --help -h --version -V' ;;
    esac
}

# Values of option $1 that begin with $2; fails where it takes none.
_gpucr_argument()
{
    case $1 in
    --pid | -p | --tree | -t) _gpucr_pids "$2" || true ;;
    --output | -o | --images-dir | -D | --driver-root | --dev-root | --state-dir) compgen -d -- "$2" || true ;;
    --criu | --log) compgen -f -- "$2" || true ;;
    --pid-wait | --ghost-limit | --criu-option | --timeout | --engine-timeout | --force) : || true ;;
    *) return 1 ;;
    esac
}

# Operands of the command $1 that begin with $2.
_gpucr_operand()
{
    case $1 in
    '') compgen -W 'list check suspend resume checkpoint restore help image' -- "$2" ;;
    image) compgen -W 'inspect verify' -- "$2" ;;
    'list') _gpucr_pids "$2" ;;
    'check') _gpucr_pids "$2" ;;
    'suspend') _gpucr_pids "$2" ;;
    'resume') _gpucr_pids "$2" ;;
    'checkpoint') _gpucr_pids "$2" ;;
    'restore') compgen -d -- "$2" ;;
    'image inspect') compgen -d -- "$2" ;;
    'image verify') compgen -d -- "$2" ;;
    'help') _gpucr_operand '' "$2" ;;
    esac
}

_gpucr()
{
    local word=${COMP_WORDS[COMP_CWORD]} verb='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -* ]]; then
            _gpucr_argument "${COMP_WORDS[i]}" x > /dev/null && ((i++))
        elif [[ -z $verb ]]; then
            verb=${COMP_WORDS[i]}
        elif [[ $verb == image ]]; then
            verb="image ${COMP_WORDS[i]}"
        fi
    done
    if ((i > COMP_CWORD)); then
        mapfile -t COMPREPLY < <(
            _gpucr_argument "${COMP_WORDS[COMP_CWORD - 1]}" "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(
            compgen -W "$(_gpucr_options "$verb")" -- "$word")
    else
        mapfile -t COMPREPLY < <(_gpucr_operand "$verb" "$word")
    fi
}

complete -o filenames -F _gpucr gpucr
