//! Public items that the product does not use: the compiler reports unused private items only.
//!
//! Knows: uses by name. A function of a type counts as used where any function of that name is called. Start reading at
//! [`public_items_are_used`].

use super::assert_none;
use super::sources::{Source, product};
use super::syntax::PublicItem;
use std::collections::{BTreeMap, BTreeSet};

/// Files whose public items are for tests: faults to inject, and inputs.
const FOR_TESTS: [&str; 3] =
    ["src/store/injected_faults.rs", "src/reconcile/simulate/faults.rs", "src/runtime/testing.rs"];
/// Public items of other files that only tests use.
const TEST_HOOKS: [(&str, &str); 2] = [("src/runtime/limits/mod.rs", "discard"), ("src/store/snapshot.rs", "attempts")];
/// Names that an attribute such as `serde(with = "module")` implies.
const BY_ATTRIBUTE: [&str; 2] = ["serialize", "deserialize"];

/// Names that the product uses.
#[derive(Default)]
struct Uses<'a> {
    /// Called methods, and the last parts of paths such as `Type::name`.
    associated: BTreeSet<&'a str>,
    /// All parts of paths, by their files.
    by_file: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Each two parts that follow each other in a path.
    pairs: BTreeSet<[&'a str; 2]>,
    /// Full paths below `crate`.
    full_paths: BTreeSet<Vec<&'a str>>,
}

impl<'a> Uses<'a> {
    fn add(&mut self, source: &'a Source) {
        self.associated.extend(source.parsed.methods.iter().map(|(_, name)| &**name));
        let names = self.by_file.entry(&source.path).or_default();
        for written in source.parsed.written.iter().filter(|written| !written.is_test && !written.is_export) {
            names.extend(written.path.iter().map(|part| &**part));
            self.pairs.extend(written.path.windows(2).map(|pair| [&*pair[0], &*pair[1]]));
            if let [_, .., name] = &*written.path {
                self.associated.insert(name);
            }
        }
        for named in source.names.iter().filter(|named| !named.is_export) {
            self.full_paths.insert(named.path.iter().skip(1).map(|part| &**part).collect());
        }
    }

    fn has(&self, source: &'a Source, item: &'a PublicItem) -> bool {
        let name = &*item.name;
        if item.is_associated {
            return self.associated.contains(name);
        }
        let module: Vec<&str> = source.module.iter().chain(&item.module).map(|part| &**part).collect();
        // A module above it may export it.
        let is_named = |length: usize| self.full_paths.contains(&[&module[..length], &[name]].concat());
        self.by_file[&*source.path].contains(name)
            || module.iter().any(|part| self.pairs.contains(&[*part, name]))
            || (0..=module.len()).any(is_named)
    }
}

#[test]
fn public_items_are_used() {
    let mut uses = Uses::default();
    product().for_each(|source| uses.add(source));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in product().filter(|source| !FOR_TESTS.contains(&&*source.path)) {
        for item in &source.parsed.public_items {
            seen += 1;
            let is_exempt = BY_ATTRIBUTE.contains(&&*item.name) || TEST_HOOKS.contains(&(&*source.path, &*item.name));
            if !is_exempt && !uses.has(source, item) {
                wrong.push(source.locate(item.line, &item.name));
            }
        }
    }
    assert_none(&wrong, "public items that the product does not use");
    assert!(seen > 1000, "public items were found: {seen}");
}
