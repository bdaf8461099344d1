//! `kloop taint`: adds and removes the taints of nodes.

use crate::cli::cluster::change::change;
use crate::cli::cluster::targets::{self, ScopeFlags, Target};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::{ChangeFlags, ValidateFlag};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::{Object, label};
use serde_json::{Value, json};

/// Update the taints on one or more nodes.
///
/// A taint consists of a key, value, and effect. As an argument here, it is expressed as key=value:effect. The effect must be
/// NoSchedule, PreferNoSchedule or NoExecute. Currently taint can only apply to node.
#[derive(clap::Args)]
#[command(
    override_usage = "NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    after_help = "\
# Update node 'foo' with a taint with key 'dedicated' and value 'special-user' and effect 'NoSchedule'
kloop taint nodes foo dedicated=special-user:NoSchedule

# Remove from node 'foo' the taint with key 'dedicated' and effect 'NoSchedule' if one exists
kloop taint nodes foo dedicated:NoSchedule-

# Remove from node 'foo' all the taints with key 'dedicated'
kloop taint nodes foo dedicated-

# Add a taint with key 'dedicated' on nodes having label myLabel=X
kloop taint node -l myLabel=X dedicated=foo:PreferNoSchedule"
)]
pub struct Args {
    /// nodes NAME, then KEY=VALUE:EFFECT or KEY:EFFECT to add and KEY:EFFECT- or KEY- to remove.
    words: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    validate: ValidateFlag,
    /// If true, allow taints to be overwritten, otherwise reject taint updates that overwrite existing taints.
    #[arg(long)]
    overwrite: bool,
}

/// A taint to add or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TaintChange {
    key: String,
    value: String,
    /// In a removal, empty for every effect.
    effect: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct TaintChanges {
    add: Vec<TaintChange>,
    remove: Vec<TaintChange>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let is_change = |word: &String| word.contains([':', '=']) || word.ends_with('-');
    let at = args.words.iter().position(is_change).unwrap_or(args.words.len());
    let (resources, changes) = args.words.split_at(at);
    let changes = TaintChanges::parse(changes).map_err(|text| Failure::Usage("taint".into(), text))?;
    let plain = |text: &str| Err(Failure::Usage("taint".into(), text.into()));
    match resources
        .first()
        .map(|kind| targets::kind(context.kinds(), kind.split('/').next().unwrap_or(kind)))
        .transpose()?
    {
        None => return plain("one or more resources must be specified as <resource> <name>"),
        Some(kind) if kind.resource != "nodes" => {
            return plain(&format!("invalid resource type {}, only node(s) is supported", kind.resource));
        }
        Some(_) => {}
    }
    if changes == TaintChanges::default() {
        return plain("at least one taint update is required");
    }
    let dry_run = args.change.dry_run(context)?;
    targets::for_each_target(context, &args.scope.with_arguments(resources), |context, target| {
        taint_node(&args, context, target, &changes, dry_run)
    })
}

impl TaintChanges {
    fn parse(words: &[String]) -> Result<TaintChanges, String> {
        let mut changes = TaintChanges::default();
        for word in words {
            match word.strip_suffix('-') {
                Some(gone) => {
                    let (key, effect) = gone.split_once(':').unwrap_or((gone, ""));
                    let key = key.split('=').next().unwrap_or(key);
                    changes.remove.push(TaintChange { key: key.into(), value: String::new(), effect: effect.into() });
                }
                None => changes.add.push(TaintChange::parse(word)?),
            }
        }
        Ok(changes)
    }
}

/// Parses `KEY=VALUE:EFFECT` into a taint as in a node's spec.
pub fn read(text: &str) -> CliResult<Value> {
    let parsed = TaintChange::parse(text).map_err(|text| Failure::Usage("node add".into(), text))?;
    Ok(parsed.to_value())
}

impl TaintChange {
    fn parse(text: &str) -> Result<TaintChange, String> {
        let (pair, effect) = text.rsplit_once(':').unwrap_or((text, ""));
        let (key, value) = if text.contains(':') { pair.split_once('=').unwrap_or((pair, "")) } else { (text, "") };
        let problems = [label::key_problems(key), label::value_problems(value)].concat();
        if !problems.is_empty() {
            return Err(format!("invalid taint spec: {text}, {}", problems.join("; ")));
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
        }
        Ok(TaintChange { key: key.into(), value: value.into(), effect: effect.into() })
    }

    /// Whether the key is equal, and the effect is equal or not given.
    fn covers(&self, taint: &Value) -> bool {
        taint["key"] == self.key.as_str() && (self.effect.is_empty() || taint["effect"] == self.effect.as_str())
    }

    fn to_value(&self) -> Value {
        let mut taint = json!({"key": self.key, "effect": self.effect});
        if !self.value.is_empty() {
            taint["value"] = self.value.as_str().into();
        }
        taint
    }
}

fn taint_node(
    args: &Args,
    context: &mut CommandContext,
    target: &Target,
    changes: &TaintChanges,
    dry_run: DryRun,
) -> CliResult {
    let reply = change(context, target, dry_run, |node| edit(node, changes, args.overwrite))?;
    let word = match (changes.add.is_empty(), changes.remove.is_empty(), args.overwrite) {
        (true, _, _) => "untainted",
        (false, true, false) => "tainted",
        _ => "modified",
    };
    let line = format!("node/{} {word}{}", reply.object.name(), dry_run.suffix());
    args.change.print.result(context, &reply.object, &line)
}

fn edit(node: &mut Object, changes: &TaintChanges, overwrite: bool) -> CliResult {
    let mut taints = node.items(&["spec", "taints"]).to_vec();
    for removed in &changes.remove {
        let before = taints.len();
        taints.retain(|taint| !removed.covers(taint));
        if taints.len() == before {
            let effect = if removed.effect.is_empty() { String::new() } else { format!(":{}", removed.effect) };
            return Err(Failure::plain(format!("taint \"{}{effect}\" not found", removed.key)));
        }
    }
    let mut conflicts: Vec<&str> = Vec::new();
    for new in &changes.add {
        if taints.iter().any(|taint| new.covers(taint)) && !conflicts.contains(&new.key.as_str()) {
            conflicts.push(&new.key);
        }
    }
    if !overwrite && !conflicts.is_empty() {
        return Err(Failure::plain(format!(
            "node {} already has {} taint(s) with same effect(s) and --overwrite is false",
            node.name(),
            conflicts.join(", ")
        )));
    }
    let kept = taints.iter().filter(|taint| !changes.add.iter().any(|new| new.covers(taint))).cloned();
    let all: Vec<Value> = changes.add.iter().map(TaintChange::to_value).chain(kept).collect();
    if all.is_empty() {
        node.unset(&["spec", "taints"]);
    } else {
        node.set(&["spec", "taints"], all);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TaintChanges, String> {
        TaintChanges::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn taints_are_read() {
        let changes = parse("a=b:NoSchedule c:NoExecute d- e:NoSchedule-").unwrap();
        let taint = |key: &str, value: &str, effect: &str| TaintChange {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
        };
        assert_eq!(changes.add, [taint("a", "b", "NoSchedule"), taint("c", "", "NoExecute")]);
        assert_eq!(changes.remove, [taint("d", "", ""), taint("e", "", "NoSchedule")]);
        assert_eq!(parse("a=b:Odd").unwrap_err(), "invalid taint effect: Odd, unsupported taint effect");
        assert!(parse("a=b").unwrap_err().starts_with("invalid taint spec: a=b, name part must consist of"));
    }

    #[test]
    fn overwrite_is_needed_to_replace_a_taint() {
        let mut node =
            Object(json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}));
        let changes = parse("a=b:NoSchedule").unwrap();
        let error = edit(&mut node, &changes, false).unwrap_err().to_string();
        assert_eq!(error, "error: node n already has a taint(s) with same effect(s) and --overwrite is false");
        edit(&mut node, &changes, true).unwrap();
        assert_eq!(node.items(&["spec", "taints"]), [json!({"key": "a", "effect": "NoSchedule", "value": "b"})]);
        edit(&mut node, &parse("a-").unwrap(), false).unwrap();
        assert!(node.value_at(&["spec", "taints"]).is_none());
        assert_eq!(
            edit(&mut node, &parse("a-").unwrap(), false).unwrap_err().to_string(),
            "error: taint \"a\" not found"
        );
    }
}
