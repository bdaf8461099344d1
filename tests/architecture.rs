//! The architecture, read from the parsed sources: modules name only modules of lower layers, pure modules have no side effects and no
//! hidden state, files of a module do not depend on each other in circles, headers claim nothing that their sources contradict,
//! public items are used, and comments, names and crates are as CONTRIBUTING asks.
//!
//! Knows: the layers. [`sources`] parses the files once; each other file is one subject. Start reading at [`LAYERS`].

mod claims;
mod crates;
mod cycles;
mod files;
mod moments;
mod purity;
mod sources;
mod statics;
mod syntax;
mod unused;
mod words;

use sources::{Named, product};
use std::collections::BTreeMap;

/// The layers, lowest first. Modules of one layer do not name each other.
const LAYERS: [&[&str]; 13] = [
    &["go"],
    &["object"],
    &["cel"],
    &["kinds"],
    &["world"],
    &["controllers", "scheduler", "kubelet", "network", "show", "kustomize", "managed_fields"],
    &["store", "runtime"],
    &["client"],
    &["apiserver"],
    &["reconcile"],
    &["diagnosis", "joined_node"],
    &["serve"],
    &["cli"],
];

/// Fails with a list of all problems.
#[track_caller]
fn assert_none(wrong: &[String], problem: &str) {
    assert!(wrong.is_empty(), "{problem}:\n{}", wrong.join("\n"));
}

/// Returns the number of the layer of a module of the crate.
fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

/// Returns the module of the crate that a path names.
fn target(name: &Named) -> Option<&str> {
    name.path.get(1).filter(|_| name.path[0] == "crate").map(String::as_str)
}

#[test]
fn modules_name_only_lower_layers() {
    let mut wrong = Vec::new();
    let mut named = BTreeMap::<&str, usize>::new();
    for source in product() {
        let Some((own, own_layer)) = source.module.first().and_then(|own| Some((own, layer(own)?))) else { continue };
        for name in &source.names {
            let Some((other, other_layer)) = target(name).and_then(|other| Some((other, layer(other)?))) else {
                continue;
            };
            *named.entry(other).or_default() += 1;
            if other != own && other_layer >= own_layer {
                wrong.push(source.locate(name.line, format!("{own} names {}", name.text())));
            }
        }
    }
    assert_none(&wrong, "modules that name a module of the same or a higher layer");
    assert!(
        LAYERS.iter().flat_map(|modules| *modules).filter(|module| named.get(*module) > Some(&40)).count() > 15,
        "the sources were read: {named:?}"
    );
}

#[test]
fn every_module_of_the_crate_has_a_layer() {
    let missing = product().filter_map(|source| source.module.first()).filter(|module| layer(module).is_none());
    let missing: Vec<String> = missing.filter(|module| *module != "main").cloned().collect();
    assert_none(&missing, "modules that are in no layer");
}

#[test]
fn spans_are_made_where_time_is_spent() {
    let wrong: Vec<String> = product()
        .filter(|source| source.is_in("apiserver") || source.is_in("runtime"))
        .flat_map(|source| {
            let names = source.names.iter().filter(|name| name.is_below("tracing"));
            names.map(|name| source.locate(name.line, name.text()))
        })
        .collect();
    assert_none(&wrong, "spans are made in reconcile, serve, store and cli");
}
