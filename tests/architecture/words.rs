//! Words: comments, functions, tests and public types are named as CONTRIBUTING asks.

use super::assert_none;
use super::sources::{Source, every_file, product, tests};
use std::collections::BTreeMap;

/// Words that no comment may open with; comments open with a verb, a noun phrase or a condition.
const OPENINGS: [&str; 10] =
    ["What ", "Who ", "Whom ", "Whose ", "Where ", "How ", "Of ", "Which ", "Whoever ", "Whatever "];

/// Articles, which no name of a test opens with.
const ARTICLES: [&str; 3] = ["A ", "An ", "The "];

/// Prepositions, pronouns and fillers, which are not names for functions.
const NAMELESS: [&str; 36] = [
    "about", "above", "after", "along", "among", "anew", "around", "at", "before", "behind", "below", "beside",
    "between", "by", "for", "hear", "in", "into", "it", "lay", "may", "must", "of", "on", "one", "or", "over", "said",
    "tell", "them", "through", "to", "told", "under", "with", "without",
];

/// Names of constants without a noun: they do not name the limited value.
const NAMELESS_CONSTANTS: [&str; 6] = ["LONGEST", "LOOK", "MOST", "OTHERS", "PATIENCE", "PAUSE"];

/// Other beginnings for the name of a maximum, which is `MAX_`.
const OTHER_MAXIMA: [&str; 5] = ["DEEPEST", "GREATEST", "LARGEST", "LONGEST_", "MOST_"];

/// Beginnings of imports of the crate's own items.
const OWN_PATHS: [&str; 2] = ["crate::", "super::"];

/// Names that several files share on purpose: the arguments of each command.
const SHARED_TYPE_NAMES: [&str; 1] = ["Args"];

/// Returns the places where a line says `is no X` instead of `is not an X`. Only `there is no X` and `is no longer` are plain.
fn negations(line: &str) -> impl Iterator<Item = &str> {
    ["is no ", "are no "].into_iter().flat_map(|words| line.match_indices(words)).filter_map(|(at, words)| {
        let (before, after) = (&line[..at], &line[at + words.len()..]);
        let is_plain = before.ends_with(char::is_alphanumeric)
            || before.to_lowercase().trim_end().ends_with("there")
            || ["longer", "more"].iter().any(|word| after.starts_with(word));
        (!is_plain).then(|| &line[at..])
    })
}

fn sources_and_tests() -> impl Iterator<Item = &'static Source> {
    every_file().iter().chain(tests())
}

#[test]
fn comments_open_with_a_verb_a_noun_or_a_condition() {
    let mut wrong = Vec::new();
    for source in sources_and_tests() {
        let lines: Vec<&str> = std::iter::once("").chain(source.text.lines().map(str::trim_start)).collect();
        for (index, pair) in lines.windows(2).enumerate().filter(|(_, pair)| !pair[0].starts_with("//")) {
            let Some(text) = pair[1].strip_prefix("//") else { continue };
            let text = text.trim_start_matches(['/', '!', ' ']);
            if OPENINGS.iter().any(|word| text.starts_with(word)) {
                wrong.push(source.locate(index + 1, pair[1]));
            }
        }
    }
    assert_none(&wrong, "see CONTRIBUTING, Words");
}

#[test]
fn texts_say_is_not_a_instead_of_is_no() {
    assert_eq!(
        negations("a is no b, there is no c, d is no longer e").collect::<Vec<_>>(),
        ["is no b, there is no c, d is no longer e"]
    );
    let mut wrong = Vec::new();
    for source in sources_and_tests().filter(|source| source.path != "tests/architecture/words.rs") {
        for (index, line) in source.text.lines().enumerate() {
            wrong.extend(negations(line).map(|text| source.locate(index + 1, text)));
        }
    }
    assert_none(&wrong, "write `is not a`");
}

#[test]
fn functions_are_not_named_by_a_preposition_or_a_pronoun() {
    let mut wrong = Vec::new();
    for source in every_file() {
        let is_nameless = |name: &str| NAMELESS.contains(&name) || name.starts_with("of_");
        let functions = source.parsed.functions.iter().filter(|function| is_nameless(&function.name));
        wrong.extend(functions.map(|function| source.locate(function.line, &function.name)));
    }
    assert_none(&wrong, "see CONTRIBUTING, Words");
}

#[test]
fn constants_name_the_thing_that_they_limit() {
    let mut wrong = Vec::new();
    for source in sources_and_tests() {
        for (index, line) in source.text.lines().enumerate() {
            let name = line.split_once("const ").and_then(|(_, rest)| rest.split_once(':')).map(|(name, _)| name);
            let is_wrong = |name: &&str| {
                NAMELESS_CONSTANTS.contains(name) || OTHER_MAXIMA.iter().any(|word| name.starts_with(word))
            };
            wrong.extend(name.filter(is_wrong).map(|name| source.locate(index + 1, name)));
        }
    }
    assert_none(&wrong, "see CONTRIBUTING, Words");
}

#[test]
fn types_are_imported_under_their_own_names() {
    let mut wrong = Vec::new();
    for source in every_file() {
        let imports = source.text.split("\nuse ").skip(1).filter_map(|text| text.split(';').next());
        for import in imports.filter(|import| OWN_PATHS.iter().any(|own| import.starts_with(own))) {
            let names = import.split(" as ").skip(1).filter_map(|rest| rest.split([',', '}']).next());
            let is_type = |name: &&str| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
            wrong.extend(names.filter(is_type).map(|name| source.locate(1, name)));
        }
    }
    assert_none(&wrong, "an alias of a type of this crate");
}

#[test]
fn test_names_open_with_their_subject() {
    let opens = |name: &str, word: &str| name.starts_with(&format!("{}_", word.trim_end().to_lowercase()));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in sources_and_tests() {
        for function in source.parsed.functions.iter().filter(|function| function.is_test) {
            seen += 1;
            if OPENINGS.iter().chain(&ARTICLES).any(|word| opens(&function.name, word)) {
                wrong.push(source.locate(function.line, &function.name));
            }
        }
    }
    assert_none(&wrong, "see CONTRIBUTING, Words");
    assert!(seen > 1000, "tests were found: {seen}");
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in product() {
        for (line, name) in &source.parsed.public_types {
            places.entry(name).or_default().push(source.locate(*line, name));
        }
    }
    assert!(places.len() > 300, "types were found: {}", places.len());
    places.retain(|name, places| places.len() > 1 && !SHARED_TYPE_NAMES.contains(name));
    assert!(places.is_empty(), "one name, one meaning: {places:#?}");
}
