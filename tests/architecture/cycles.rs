//! Cycles: the child modules of a module depend on each other in one direction.
//!
//! A child counts with all modules in it. The parent's own file is left out: it names its children, and they may use what it defines.
//! The files of a folder that only groups them count as children of its parent ([`GROUPS`]). A name that another module re-exports belongs
//! to the module that defines it. Start reading at [`KNOWN`].

use super::assert_none;
use super::sources::{Source, modules, product};
use std::collections::{BTreeMap, BTreeSet};

/// Known cycles that should be removed: the parent and the children in the cycle. A new cycle fails, and so does one that no longer exists.
const KNOWN: &[(&str, &[&str])] = &[];

/// Folders that only group files of their parent.
const GROUPS: [&str; 6] =
    ["cli/cluster", "cli/command_line", "cli/manifests", "cli/output", "kinds/catalogue", "kinds/shared"];

type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the module that a path names: its longest prefix that is a module.
fn find_module(path: &[String]) -> Option<&[String]> {
    let below = path.split_first().filter(|(first, _)| *first == "crate")?.1;
    (0..=below.len()).rev().map(|length| &below[..length]).find(|module| modules().contains(*module))
}

/// Returns the child of a module that a module below it is or belongs to.
fn child(parent: &[String], module: &[String]) -> Option<String> {
    let first = module.strip_prefix(parent)?.first()?;
    let group = [parent, std::slice::from_ref(first)].concat().join("/");
    if !GROUPS.contains(&&*group) {
        return Some(first.clone());
    }
    let member = module.get(parent.len() + 1)?;
    Some(format!("{first}/{member}"))
}

/// The graph of the children of a module, with a place for each dependency.
fn graph(parent: &[String], dependencies: &[(&'static Source, usize, &'static [String])]) -> Graph {
    let mut graph = Graph::new();
    for (source, line, target) in dependencies {
        let (Some(from), Some(to)) = (child(parent, &source.module), child(parent, target)) else { continue };
        if from != to {
            let place = source.locate(*line, target.join("::"));
            graph.entry(from).or_default().entry(to).or_insert(place);
        }
    }
    graph
}

/// Returns the children that can be reached from one child.
fn reach(graph: &Graph, from: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(node) = open.pop() {
        for next in graph.get(node).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen
}

/// Returns the sets of children that can reach each other.
fn circles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|node| (node, reach(graph, node))).collect();
    let circle = |node: &String| {
        let back = reached[node].iter().filter(|other| reached.get(other).is_some_and(|from| from.contains(node)));
        back.cloned().collect::<Vec<_>>()
    };
    reached.keys().map(|node| circle(node)).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn files_of_a_module_depend_on_each_other_in_one_direction() {
    let dependencies: Vec<_> = product()
        .flat_map(|source| source.names.iter().map(move |name| (source, name)))
        .filter_map(|(source, name)| Some((source, name.line, find_module(&name.path)?)))
        .filter(|(source, _, target)| source.module != *target)
        .collect();
    let parents: BTreeSet<&[String]> = modules()
        .iter()
        .filter_map(|module| Some(module.split_last()?.1))
        .filter(|parent| !parent.is_empty())
        .collect();
    let (mut wrong, mut known) = (Vec::new(), KNOWN.to_vec());
    for parent in parents {
        let graph = graph(parent, &dependencies);
        for circle in circles(&graph) {
            let name = parent.join("/");
            if let Some(index) =
                known.iter().position(|(parent, children)| *parent == name && circle.iter().eq(children.iter()))
            {
                known.remove(index);
                continue;
            }
            wrong.push(format!("{name}: {}", circle.join(", ")));
            for (from, edges) in graph.iter().filter(|(from, _)| circle.contains(from)) {
                let edges = edges.iter().filter(|(to, _)| circle.contains(to));
                wrong.extend(edges.map(|(to, place)| format!("    {from} -> {to}: {place}")));
            }
        }
    }
    assert_none(&wrong, "child modules that depend on each other: move the shared item into the file that it is about");
    assert!(known.is_empty(), "these cycles are gone, take them off the list: {known:#?}");
}
