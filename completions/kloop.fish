# fish completion for kloop, as `kloop completion fish` prints it. Source it, or put it into
# ~/.config/fish/completions/kloop.fish. The words come from kloop itself, which asks the cluster's file.

complete --keep-order --no-files --command kloop --arguments "(KLOOP_COMPLETE=fish kloop -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token) 2>/dev/null)"
