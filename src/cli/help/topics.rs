//! The topics of `kloop help TOPIC`: the Markdown files of `src/help/`, compiled in.
//!
//! A new topic is a file there and a line in [`ALL`]. The first line of the file is its heading, `# Name: summary`.

use strsim::jaro_winkler;

/// A page of documentation about one subject.
pub struct Topic {
    /// The word that asks for it, which is the name of its file.
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
    use crate::cli::grammar;

    #[test]
    fn topic_has_a_heading_with_a_summary_and_a_command() {
        for topic in ALL {
            assert!(topic.text.starts_with("# ") && topic.summary().len() > 10, "{}", topic.name);
            let opening: String = topic.text.lines().take(12).collect();
            assert!(opening.contains("kloop ") || opening.contains("cargo "), "{} opens without a command", topic.name);
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
