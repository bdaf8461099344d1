//! Public items that nothing uses: the compiler reports unused private items only.
//!
//! Knows: names as words of the sources. Start reading at [`public_items_are_used`].

use super::assert_none;
use super::sources::{Source, every_file, product, tests};
use std::collections::BTreeMap;

/// Keywords before the name of a public item.
const KEYWORDS: [&str; 5] = ["const", "static", "async", "unsafe", "fn"];

/// Returns the lines of a file that are not comments, with their numbers.
fn code_lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().map(str::trim_start).enumerate();
    lines.filter(|(_, line)| !line.starts_with("//")).map(|(index, line)| (index + 1, line))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Returns the name of the public function, constant or static that a line defines.
fn public_item(line: &str) -> Option<&str> {
    let mut words = words(line.strip_prefix("pub ")?).peekable();
    words.next_if(|word| KEYWORDS.contains(word))?;
    words.find(|word| !KEYWORDS.contains(word))
}

#[test]
fn public_items_are_used() {
    let mut counts = BTreeMap::<&str, usize>::new();
    for (_, line) in every_file().iter().chain(tests()).flat_map(code_lines) {
        words(line).for_each(|word| *counts.entry(word).or_default() += 1);
    }
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in product() {
        for (line, name) in code_lines(source).filter_map(|(line, text)| Some((line, public_item(text)?))) {
            seen += 1;
            if counts[name] == 1 {
                wrong.push(source.locate(line, name));
            }
        }
    }
    assert_none(&wrong, "public items that nothing uses");
    assert!(seen > 1000, "public items were found: {seen}");
}
