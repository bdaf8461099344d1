# bash completion for kloop, as `kloop completion bash` prints it. Source it, or put it into
# ~/.local/share/bash-completion/completions/kloop. The words come from kloop itself, which asks the cluster's file.

_kloop() {
    # The line itself, since bash splits words at `=` and `:` too; $2 is the part that is to be replaced.
    mapfile -t COMPREPLY < <(KLOOP_COMPLETE=bash kloop -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o bashdefault -o nosort -F _kloop kloop 2>/dev/null || complete -o bashdefault -F _kloop kloop
