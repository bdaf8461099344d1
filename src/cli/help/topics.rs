//! The topics of `kloop help TOPIC`: the Markdown files of `src/help/`, compiled in.
//!
//! A new topic is a file there and a line in [`ALL`]. The first line of the file is its heading, `# Name: summary`.

use crate::show::wrap::hang;
use strsim::jaro_winkler;

/// Width of shown pages. The files are wider.
const WIDTH: usize = 80;

/// A page of documentation about one subject.
pub struct Topic {
    /// The name of the topic, which is the name of its file.
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! topics {
    ($($name:literal)*) => {
        [$(Topic { name: $name, text: include_str!(concat!("../../help/", $name, ".md")) }),*]
    };
}

/// All topics, in the order of the list: running programs first, then the network, the control plane, and reference.
pub static ALL: &[Topic] = &topics! {
    "development"
    "dashboard"
    "images"
    "files"
    "processes"
    "network"
    "names"
    "ingress"
    "policies"
    "limits"
    "scheduling"
    "nodes"
    "running"
    "gitops"
    "convergence"
    "custom"
    "admission"
    "operators"
    "api"
    "servers"
    "state"
    "environment"
    "security"
    "differences"
};

impl Topic {
    /// Returns the topic with this name.
    pub fn find(name: &str) -> Option<&'static Topic> {
        ALL.iter().find(|topic| topic.name == name)
    }

    /// The summary in the heading, after the colon.
    pub fn summary(&self) -> &'static str {
        let heading = self.text.lines().next().unwrap_or_default();
        heading.split_once(": ").map_or(heading, |(_, summary)| summary)
    }

    /// The text with paragraphs and lists wrapped for a terminal. Headings, tables and blocks stay as they are.
    pub fn page(&self) -> String {
        let (mut text, mut paragraph) = (String::new(), String::new());
        let mut is_fenced = false;
        for line in self.text.lines() {
            let is_fence = line.starts_with("```");
            if is_fenced || is_fence || is_kept(line) || is_item(line) {
                print_paragraph(&mut text, &mut paragraph);
            }
            is_fenced ^= is_fence;
            if is_fenced || is_fence || is_kept(line) {
                text.push_str(line);
                text.push('\n');
            } else {
                let gap = if paragraph.is_empty() { "" } else { " " };
                paragraph.push_str(&format!("{gap}{}", line.trim()));
            }
        }
        print_paragraph(&mut text, &mut paragraph);
        text
    }
}

/// Whether a line outside of blocks is not prose: a heading, a row of a table, a command behind a margin, or empty.
fn is_kept(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with(['#', '|']) || line.starts_with("    ")
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
}

/// Appends a paragraph or an item of a list, and empties it.
fn print_paragraph(text: &mut String, paragraph: &mut String) {
    if paragraph.is_empty() {
        return;
    }
    let (mark, words) = match is_item(paragraph) {
        true => paragraph.split_at(paragraph.find(' ').map_or(0, |end| end + 1)),
        false => ("", paragraph.as_str()),
    };
    let rest = " ".repeat(mark.len());
    text.push_str(&format!("{}\n", hang(WIDTH, mark, &rest, words)));
    paragraph.clear();
}

/// Returns the lines of a page that are prose.
#[cfg(test)]
pub fn prose(page: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let lines = page.lines().filter(|line| {
        is_fenced ^= line.starts_with("```");
        !is_fenced && !is_kept(line)
    });
    lines.collect()
}

/// Returns at most three known words that resemble an unknown one, most similar first.
pub fn similar<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<(f64, &str)> = known.map(|name| (jaro_winkler(word, name), name)).collect();
    found.retain(|(likeness, name)| *likeness > 0.85 || (word.len() > 2 && name.starts_with(word)));
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, name)| name).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::grammar;

    #[test]
    fn topic_has_a_heading_with_a_summary_and_a_command() {
        for topic in ALL {
            assert!(topic.text.starts_with("# ") && topic.summary().len() > 10, "{}", topic.name);
            let opening: String = topic.text.lines().take(12).collect();
            assert!(opening.contains("kloop ") || opening.contains("cargo "), "{} opens without a command", topic.name);
        }
    }

    #[test]
    fn paragraphs_and_lists_are_wrapped() {
        let long = "word ".repeat(30);
        let text = format!("# T: a\n\n{long}\n- {long}\n  {long}\n\n    kloop {long}\n| {long}|\n```\n{long}\n```\n");
        let page = Topic { name: "t", text: text.leak() }.page();
        let lines: Vec<&str> = page.lines().collect();
        assert!(lines[2].len() <= WIDTH && lines[3].starts_with("word"), "{page}");
        let item = lines.iter().position(|line| line.starts_with("- word")).unwrap();
        assert!(lines[item + 1].starts_with("  word") && lines[item + 1].len() <= WIDTH, "{page}");
        assert_eq!(lines.iter().filter(|line| line.len() > WIDTH).count(), 3, "{page}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for topic in ALL {
            assert_eq!(words(&topic.page()), words(topic.text), "{}", topic.name);
        }
    }

    /// Topics about the subject of the verb with their name: `kloop help state` shows the topic, `kloop state --help` the flags.
    const ABOUT_A_VERB: [&str; 1] = ["state"];

    #[test]
    fn topic_is_named_like_a_verb_only_when_it_is_about_its_subject() {
        let grammar = grammar::command();
        let verbs: Vec<&str> = grammar.get_subcommands().map(|verb| verb.get_name()).collect();
        for topic in ALL {
            assert_eq!(verbs.contains(&topic.name), ABOUT_A_VERB.contains(&topic.name), "{}", topic.name);
        }
    }

    #[test]
    fn similar_names_come_best_first() {
        let names = || ALL.iter().map(|topic| topic.name);
        assert_eq!(similar("netwrk", names()).first(), Some(&"network"));
        assert_eq!(similar("sched", names()).first(), Some(&"scheduling"));
        assert!(similar("xyzzy", names()).is_empty());
    }
}
