//! The name under which the program was called: called as kubectl, it names itself so.
//!
//! Start reading at [`in_own_words`].

use std::borrow::Cow;
use std::path::Path;

/// The verbs of kubectl. Texts about other verbs name kloop under every name.
const KUBECTL: [&str; 44] = [
    "annotate",
    "api-resources",
    "api-versions",
    "apply",
    "attach",
    "auth",
    "autoscale",
    "certificate",
    "cluster-info",
    "completion",
    "config",
    "cordon",
    "cp",
    "create",
    "debug",
    "delete",
    "describe",
    "diff",
    "drain",
    "edit",
    "events",
    "exec",
    "explain",
    "expose",
    "get",
    "kuberc",
    "kustomize",
    "label",
    "logs",
    "options",
    "patch",
    "plugin",
    "port-forward",
    "proxy",
    "replace",
    "rollout",
    "run",
    "scale",
    "set",
    "taint",
    "top",
    "uncordon",
    "version",
    "wait",
];

/// Whether the program was called as kubectl.
fn is_kubectl() -> bool {
    let name = std::env::args_os().next();
    name.as_deref().and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "kubectl")
}

/// Returns a message with the name under which the program was called.
pub fn in_own_words(text: &str) -> Cow<'_, str> {
    if text.contains("kloop") && is_kubectl() { Cow::Owned(for_kubectl(text)) } else { Cow::Borrowed(text) }
}

/// Replaces the name of the program before flags, placeholders and verbs that kubectl has.
fn for_kubectl(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find("kloop") {
        let (before, found) = rest.split_at(at);
        let after = &found["kloop".len()..];
        let is_word = !before.ends_with(|letter: char| letter.is_alphanumeric() || "-_/.".contains(letter));
        out.push_str(before);
        out.push_str(if is_word && is_about_kubectl(after) { "kubectl" } else { "kloop" });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether the text after the name is the end of a quotation, or the rest of a kubectl command.
fn is_about_kubectl(after: &str) -> bool {
    let Some(after) = after.strip_prefix(' ') else { return after.starts_with(['"', '\'']) };
    let verb: String = after.chars().take_while(|letter| letter.is_ascii_alphabetic() || *letter == '-').collect();
    match after.chars().next() {
        Some('<' | '[') => true,
        _ if verb == "plugins" => true,
        _ if verb.starts_with('-') => true,
        _ => is_kubectl_verb(&verb),
    }
}

/// Whether kubectl has a verb, too. These check the rights of the user of `--as`, or ask the API for nothing.
pub fn is_kubectl_verb(verb: &str) -> bool {
    KUBECTL.contains(&verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_kubectl_where_it_has_the_command() {
        for (text, expected) in [
            ("See 'kloop get --help' for usage.", "See 'kubectl get --help' for usage."),
            ("error: unknown command \"x\" for \"kloop\"", "error: unknown command \"x\" for \"kubectl\""),
            (
                "Use \"kloop api-resources\" or 'kloop <command>'",
                "Use \"kubectl api-resources\" or 'kubectl <command>'",
            ),
            ("kloop --help", "kubectl --help"),
            ("unable to find any kloop plugins in your PATH", "unable to find any kubectl plugins in your PATH"),
            ("hint: run: kloop why deployment/web", "hint: run: kloop why deployment/web"),
            ("no control plane runs: kloop reconcile --watch", "no control plane runs: kloop reconcile --watch"),
            ("the group kloop.dev of /home/kloop get", "the group kloop.dev of /home/kloop get"),
        ] {
            assert_eq!(for_kubectl(text), expected);
        }
    }
}
