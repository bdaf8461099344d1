//! Help pages in kubectl's layout: purpose, examples, subcommands, flags and usage of a verb.
//!
//! The texts are next to the verb: the doc comment of its `Args`, its usage and examples, and the
//! doc comments of its flags. Start reading at [`page`]. Topics are Markdown files, listed in
//! [`topics`].

mod pager;
pub mod topics;
mod verb;

pub use verb::{Args, run};

use super::command_line::grammar;
use super::{CliResult, CommandContext};
use crate::show::print;
use crate::show::wrap::{hang, wrap};
use clap::{Arg, ArgAction, Command};
use std::any::TypeId;
use std::io::IsTerminal;

/// Width of pages in a terminal.
const WIDTH: usize = 80;

/// Width of pages on standard output: as in kubectl, lines break only in a terminal.
pub fn output_width() -> usize {
    if std::io::stdout().is_terminal() { WIDTH } else { usize::MAX }
}

/// Print the list of flags inherited by all commands.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# Print flags inherited by all commands
kloop options"
)]
pub struct OptionsArgs {}

/// Prints the flags that all commands take.
pub fn print_options(_args: OptionsArgs, context: &mut CommandContext) -> CliResult {
    context.print(&options(&grammar::command(), output_width()))
}

/// Returns the verb that a command line names, and its path. Skips `help`, and stops at the first
/// unknown word.
pub fn lookup(grammar: &Command, words: impl Iterator<Item = String>) -> (Vec<String>, &Command) {
    let (mut path, mut verb) = (Vec::new(), grammar);
    let mut words = words.filter(|word| word != "help");
    while let Some(word) = words.next() {
        if word.starts_with('-') {
            if takes_next_word(verb, &word) {
                words.next();
            }
            continue;
        }
        let Some(found) = verb.find_subcommand(&word) else { break };
        path.push(found.get_name().to_owned());
        verb = found;
    }
    (path, verb)
}

/// Whether the word after this flag is the flag's value. It is not after `--flag=value`, `-fvalue`
/// or a switch.
fn takes_next_word(verb: &Command, flag: &str) -> bool {
    let is_flag = |known: &&Arg| match flag.strip_prefix("--") {
        Some(long) => known.get_long() == Some(long),
        None => flag.len() == 2 && known.get_short() == flag.chars().nth(1),
    };
    let known = verb.get_arguments().find(is_flag);
    known.is_some_and(|known| known.get_action().takes_values() && !known.is_require_equals_set())
}

/// The headings of the main page with their verbs.
pub type VerbGroups = &'static [(&'static str, &'static [&'static str])];

/// A verb's page, as wide as this; `groups` are for the main page.
pub fn page(path: &[String], verb: &Command, groups: VerbGroups, width: usize) -> String {
    let mut text = format!("{}\n", purpose(verb, width));
    let aliases: Vec<&str> = std::iter::once(verb.get_name()).chain(verb.get_visible_aliases()).collect();
    if aliases.len() > 1 {
        text.push_str(&format!("\nAliases:\n{}\n", aliases.join(",")));
    }
    if let Some(examples) = verb.get_after_help() {
        text.push_str(&format!("\nExamples:\n{}\n", indented(&wrap_remarks(&examples.to_string(), width), "  ")));
    }
    text.push_str(&verbs(path, verb, groups, width));
    let flags: String = flags(verb).filter(|flag| !flag.is_global_set()).map(|flag| entry(path, flag, width)).collect();
    if !flags.is_empty() {
        text.push_str(&format!("\nOptions:\n{}\n", flags.trim_end_matches('\n')));
    }
    text.push_str(&format!("\nUsage:\n  {}\n\n", usage(path, verb)));
    if subcommands(verb).next().is_some() {
        let path = [&["kloop".to_owned()], path].concat().join(" ");
        let about = format!("Use \"{path} <command> --help\" for more information about a given command.\n");
        text.push_str(&wrap(width, &about));
    }
    text + &wrap(width, "Use \"kloop options\" for a list of global command-line options (applies to all commands).\n")
}

/// The flags that every verb takes.
pub fn options(grammar: &Command, width: usize) -> String {
    let flags: String =
        flags(grammar).filter(|flag| flag.is_global_set()).map(|flag| entry(&[], flag, width)).collect();
    format!("The following options can be passed to any command:\n\n{}\n", flags.trim_end_matches('\n'))
}

/// The first line of the help, and the remaining paragraphs below it.
fn purpose(verb: &Command, width: usize) -> String {
    let short = verb.get_about().map(|about| format!("{}.", about.to_string().trim_end_matches('.')));
    let Some(long) = verb.get_long_about().map(ToString::to_string) else {
        return wrap(width, &short.unwrap_or_default());
    };
    let mut paragraphs = long.split("\n\n");
    let mut text = wrap(width, paragraphs.next().unwrap_or_default());
    paragraphs.for_each(|paragraph| text.push_str(&format!("\n\n{}", hang(width, " ", " ", paragraph))));
    text
}

/// Wraps the remarks between the commands of examples, which stand behind a margin of two.
fn wrap_remarks(examples: &str, width: usize) -> String {
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(remark) => hang(width - 2, "# ", "# ", remark),
        None => line.to_owned(),
    };
    examples.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn indented(text: &str, by: &str) -> String {
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("{by}{line}") };
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The subcommands, without clap's own `help`.
fn subcommands(verb: &Command) -> impl Iterator<Item = &Command> {
    verb.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
}

fn verbs(path: &[String], verb: &Command, groups: VerbGroups, width: usize) -> String {
    let margin = subcommands(verb).map(|inner| inner.get_name().len()).max().unwrap_or(0) + 3;
    let line = |inner: &Command| {
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        entry_of_list(margin, width, inner.get_name(), about.trim_end_matches('.'))
    };
    let section = |title: &str, lines: String| match lines.is_empty() {
        true => String::new(),
        false => format!("\n{title}:\n{lines}"),
    };
    if !path.is_empty() {
        let mut sorted: Vec<&Command> = subcommands(verb).collect();
        sorted.sort_by_key(|inner| inner.get_name());
        return section("Available Commands", sorted.into_iter().map(line).collect());
    }
    let mut text = String::new();
    for (title, names) in groups {
        let found = names.iter().filter_map(|name| subcommands(verb).find(|inner| inner.get_name() == *name));
        text.push_str(&section(title, found.map(line).collect()));
    }
    let topic = |topic: &topics::Topic| entry_of_list(margin, width, topic.name, topic.summary());
    text + &section("Topics (kloop help TOPIC)", topics::ALL.iter().map(topic).collect())
}

/// A name with its explanation behind a margin.
fn entry_of_list(margin: usize, width: usize, name: &str, about: &str) -> String {
    let (first, rest) = (format!("  {name:margin$}"), " ".repeat(margin + 2));
    format!("{}\n", hang(width, &first, &rest, about))
}

/// The flags of a verb, sorted by name.
fn flags(verb: &Command) -> impl Iterator<Item = &Arg> {
    let mut flags: Vec<&Arg> = verb
        .get_arguments()
        .filter(|flag| !flag.is_positional() && !flag.is_hide_set())
        .filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"))
        .collect();
    flags.sort_by_key(|flag| flag.get_long());
    flags.into_iter()
}

/// A flag with its default and its help.
fn entry(path: &[String], flag: &Arg, width: usize) -> String {
    let short = flag.get_short().map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    // clap removes the final full stop.
    if !help.ends_with(['.', ')', ']']) {
        help.push('.');
    }
    if help == "Output format." {
        let formats = print::formats(path.first().is_some_and(|verb| verb == "get")).join(", ");
        help.push_str(&format!(" One of: ({formats})."));
    }
    // A tab is eight columns wide.
    let help = indented(&wrap(width - 8, &help), "\t");
    format!("    {short}--{}={}:\n{help}\n\n", flag.get_long().unwrap_or_default(), default(path, flag))
}

/// Defaults that the grammar does not have, because the verb tells whether the flag is given: verb, flag, default. An empty verb is any.
const DEFAULTS: [(&str, &str, &str); 12] = [
    ("", "attach", "false"),
    ("", "wait", "false"),
    ("", "windows-line-endings", "false"),
    ("api-resources", "namespaced", "true"),
    ("autoscale", "cpu-percent", "-1"),
    ("autoscale", "max", "-1"),
    ("config view", "merge", "true"),
    ("config view", "output", "'yaml'"),
    ("debug", "share-processes", "true"),
    ("describe", "show-events", "true"),
    ("logs", "tail", "-1"),
    ("run", "port", "''"),
];

/// A flag's default as Go would print it.
fn default(path: &[String], flag: &Arg) -> String {
    let (verb, long) = (path.join(" "), flag.get_long().unwrap_or_default());
    let known = DEFAULTS.iter().find(|(of, name, _)| *name == long && (of.is_empty() || *of == verb));
    if let Some((_, _, default)) = known.filter(|_| flag.get_default_values().is_empty()) {
        return (*default).to_owned();
    }
    if long == "field-manager" {
        return format!("'{}'", grammar::default_manager(path.first().map_or("", String::as_str)));
    }
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let is_time = |text: &str| {
        text.split_inclusive(['h', 'm', 's']).all(|part| is_number(part.trim_end_matches(['h', 'm', 's'])))
            && text.ends_with(['s', 'm', 'h'])
    };
    let kind = flag.get_value_parser().type_id();
    let numeric = [TypeId::of::<i64>(), TypeId::of::<i32>(), TypeId::of::<u16>()].iter().any(|known| kind == *known);
    match flag.get_default_values() {
        values if matches!(flag.get_action(), ArgAction::Append) => {
            let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
            format!("[{}]", values.join(","))
        }
        [] if numeric => "0".to_owned(),
        [] => "''".to_owned(),
        [value, ..] => match value.to_str().unwrap_or_default() {
            text if matches!(text, "true" | "false") || is_number(text) || is_time(text) => text.to_owned(),
            text => format!("'{text}'"),
        },
    }
}

/// Returns the usage line of a verb: its own, or clap's.
fn usage(path: &[String], verb: &Command) -> String {
    let name = [&["kloop".to_owned()], path].concat().join(" ");
    let written = verb.clone().render_usage().to_string();
    let written = written.trim_start_matches("Usage: ").lines().next().unwrap_or_default();
    let words = match written.strip_prefix("kloop") {
        Some(_) if path.is_empty() => "[flags]".to_owned(),
        Some(made_up) => made_up.trim_start_matches(&name[5..]).replace("[OPTIONS]", "").trim().to_owned(),
        None => written.to_owned(),
    };
    [&name, &words, "[options]"].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::grammar;
    use crate::cli::verbs::GROUPS;
    use crate::cli::verbs::is_verb;
    use clap::error::ErrorKind;

    fn every(grammar: &Command, path: &mut Vec<String>, check: &mut dyn FnMut(&[String], &Command)) {
        check(path, grammar);
        for inner in subcommands(grammar) {
            path.push(inner.get_name().to_owned());
            every(inner, path, check);
            path.pop();
        }
    }

    fn built() -> Command {
        let mut grammar = grammar::command();
        grammar.build();
        grammar
    }

    /// Splits a line like a shell, as far as the examples need it.
    fn split(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for letter in line.chars() {
            match (letter, quote) {
                (letter, Some(open)) if letter == open => quote = None,
                ('\'' | '"', None) => quote = Some(letter),
                (' ', None) => words.push(String::new()),
                (letter, _) => words.last_mut().unwrap().push(letter),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn examples_are_understood() {
        every(&built(), &mut Vec::new(), &mut |path, verb| {
            let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines().filter(|line| !line.starts_with('#')) {
                let command = line.split(" | ").find(|part| part.starts_with("kloop "));
                let Some(command) = command else { continue };
                let parsed = grammar::parse(split(command.split(" > ").next().unwrap()));
                assert!(parsed.is_ok(), "{path:?}: {line}: {}", parsed.unwrap_err());
            }
        });
    }

    /// The commands on a page of Markdown: those in its blocks, and those between backticks that
    /// name kloop or a known command with a flag.
    fn commands(page: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (place, block) in page.split("```").enumerate() {
            if place % 2 == 1 {
                let lines =
                    block.lines().flat_map(|line| line.split("&&")).map(|part| part.trim().trim_start_matches("$ "));
                let lines = lines.map(|line| line.trim_start_matches("./target/release/"));
                found.extend(lines.filter(|line| line.starts_with("kloop ")).map(str::to_owned));
                continue;
            }
            let indented = block.lines().filter_map(|line| line.strip_prefix("    ")).flat_map(|line| line.split("&&"));
            let indented = indented.map(|part| part.trim().trim_start_matches("./target/release/"));
            found.extend(indented.filter(|line| line.starts_with("kloop ")).map(str::to_owned));
            let spans = block.split('`').skip(1).step_by(2);
            let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
            found.extend(spans.filter_map(|span| match span.split(' ').next()? {
                "kloop" => Some(span),
                first if is_verb(first) && span.contains(" -") => Some(format!("kloop {span}")),
                _ => None,
            }));
        }
        found.retain(|line| line.contains(' ') && !line.contains("...") && !line.contains(['[', '\\']));
        found
    }

    #[test]
    fn commands_of_the_readme_and_the_topics_are_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let topics = std::fs::read_dir(root.join("src/help")).unwrap().map(|entry| entry.unwrap().path());
        let pages = topics.chain([root.join("README.md")]).map(|path| std::fs::read_to_string(path).unwrap());
        let commands: Vec<String> = pages.flat_map(|page| commands(&page)).collect();
        assert!(commands.len() > 40, "{commands:?}");
        for line in commands {
            let parsed = grammar::parse(split(line.split(" > ").next().unwrap()));
            // Prose may leave out an argument or a flag's value, but every name in it must exist.
            let is_mention = |error: &clap::Error| match error.kind() {
                ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand => true,
                ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
                kind => kind == ErrorKind::InvalidValue && line.rsplit(' ').next().unwrap().starts_with('-'),
            };
            assert!(parsed.as_ref().err().is_none_or(is_mention), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn lookup_stops_at_an_unknown_word() {
        let grammar = built();
        let path = |line: &str| lookup(&grammar, line.split(' ').map(str::to_owned)).0.join(" ");
        let table = [
            ("auth can-i create pods", "auth can-i"),
            ("alpha create pods", ""),
            ("-n create get pods --bad", "get"),
            ("--namespace=a get pods create", "get"),
            ("create nonsense", "create"),
            ("rollout status deploy/a --nope", "rollout status"),
            ("help rollout status", "rollout status"),
        ];
        for (line, expected) in table {
            assert_eq!(path(line), expected, "{line}");
        }
    }

    #[test]
    fn verbs_and_flags_have_help() {
        every(&built(), &mut Vec::new(), &mut |path, verb| {
            assert!(verb.get_about().is_some(), "{path:?} says nothing");
            let is_leaf = subcommands(verb).next().is_none();
            let hidden = verb.is_hide_set();
            assert!(!is_leaf || hidden || verb.get_after_help().is_some(), "{path:?} has no examples");
            for flag in flags(verb) {
                assert!(flag.get_help().is_some(), "{path:?} --{}", flag.get_id());
            }
        });
    }

    #[test]
    fn prose_fits_80_columns() {
        every(&built(), &mut Vec::new(), &mut |path, verb| {
            let page = page(path, verb, GROUPS, WIDTH) + &options(verb, WIDTH);
            let (mut in_examples, mut is_usage) = (false, false);
            for line in page.lines() {
                in_examples = if line.starts_with(' ') || line.is_empty() { in_examples } else { line == "Examples:" };
                is_usage = if line.starts_with(' ') { is_usage } else { line == "Usage:" };
                let is_command = is_usage || in_examples && !line.starts_with("  #");
                // A word can be longer than a line.
                let is_word = line.split_whitespace().count() < 2;
                let width = line.replace('\t', "        ").chars().count();
                assert!(width <= WIDTH || is_command || is_word, "{path:?}: {line}");
            }
        });
        for topic in topics::ALL {
            for line in topics::prose(&topic.page()) {
                assert!(line.chars().count() <= WIDTH, "{}: {line}", topic.name);
            }
        }
    }

    #[test]
    fn defaults_are_go_s() {
        let grammar = built();
        let cases = [
            ("delete", "-f, --filename=[]:"),
            ("delete", "--wait=true:"),
            ("delete", "--grace-period=-1:"),
            ("delete", "--timeout=0s:"),
            ("delete", "--cascade='background':"),
            ("logs", "--tail=-1:"),
            ("exec", "--pod-running-timeout=1m0s:"),
            ("describe", "--show-events=true:"),
            ("apply", "--wait=false:"),
            ("apply", "--field-manager='kubectl-client-side-apply':"),
            ("create configmap", "--field-manager='kubectl-create':"),
            ("config view", "--merge=true:"),
            ("port-forward", "--address=[localhost]:"),
            ("wait", "-R, --recursive=true:"),
        ];
        for (words, line) in cases {
            let (path, verb) = lookup(&grammar, words.split(' ').map(str::to_owned));
            let page = page(&path, verb, GROUPS, WIDTH);
            assert!(page.contains(&format!("\n    {line}\n")), "{line} in\n{page}");
        }
    }
}
