//! `kloop help`: prints the page of a command or of a topic.

use super::topics::{ALL, Topic, similar};
use super::{VerbGroups, output_width, page, pager, subcommands};
use crate::cli::command_line::grammar;
use crate::cli::command_line::program_name::in_own_words;
use crate::cli::{CliResult, CommandContext, Failure};
use clap::Command;

/// Show the help of a command, or a topic of the documentation.
#[derive(clap::Args)]
#[command(
    override_usage = "[COMMAND | TOPIC]",
    after_help = "\
# List all commands and topics
kloop help

# Show the help of a command
kloop help rollout undo

# Read about images
kloop help images"
)]
pub struct Args {
    /// A command with its subcommands, or a topic.
    words: Vec<String>,
}

/// Runs the verb; `groups` are the headings of the main page.
pub fn run(args: Args, groups: VerbGroups, context: &mut CommandContext) -> CliResult {
    let mut grammar = grammar::command();
    grammar.build();
    if let [name] = &args.words[..]
        && let Some(topic) = Topic::find(name)
    {
        let text = topic.page();
        return if pager::show(&text) { Ok(()) } else { context.print(&text) };
    }
    let (mut path, mut verb) = (Vec::new(), &grammar);
    for word in &args.words {
        let found = verb.find_subcommand(word).ok_or_else(|| unknown(&args.words, word, verb, path.is_empty()))?;
        if found.get_name() != "help" {
            path.push(found.get_name().to_owned());
            verb = found;
        }
    }
    context.print(&in_own_words(&page(&path, verb, groups, output_width())))
}

/// The error for a word that names neither a command nor a topic, with similar names.
fn unknown(words: &[String], word: &str, verb: &Command, is_first: bool) -> Failure {
    let topics = ALL.iter().map(|topic| topic.name).filter(|_| is_first);
    let near = similar(word, subcommands(verb).map(Command::get_name).chain(topics));
    let near: String = near.iter().map(|name| format!("\n\t{name}")).collect();
    let near = if near.is_empty() { near } else { format!("\n\nDid you mean this?{near}\n") };
    let list = "See 'kloop help' for all commands and topics.";
    Failure::plain(format!("unknown help topic {:?}{near}\n{list}", words.join(" ")))
}
