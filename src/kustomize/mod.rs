//! Builds a kustomization like kustomize v5: files in, objects out.
//!
//! Knows: the kustomization file ([`mod@file`]), the layers ([`layer`]), and one file for each
//! transformation of a layer. Never: opens a file itself (callers pass [`FileAccess`]), sends an
//! object anywhere.
//! Unsupported fields are refused by name, never ignored. Start reading at [`build`].

mod affix;
mod field;
mod file;
mod generate;
pub mod hash;
mod id;
mod images;
mod labels;
mod layer;
mod namespace;
mod order;
mod patch;
mod path;
mod plugins;
mod references;
mod replacements;
mod replicas;
mod resource;
mod root;
mod rules;
mod target;
mod vars;

pub use layer::VERSION;
pub use resource::BuildResource;
pub use root::{FileAccess, FoundPath};

use resource::BuildResources;
use root::KustomizationRoot;

/// Result of a step; the error is in kubectl's words.
pub type BuildResult<T = ()> = Result<T, String>;

/// Objects with this annotation are for other tools, and are left out of the result.
const LOCAL: &str = "config.kubernetes.io/local-config";

/// Builds the kustomization in a folder. Adds warnings about deprecated fields.
pub fn build(files: &dyn FileAccess, folder: &str, warnings: &mut Vec<String>) -> BuildResult<Vec<BuildResource>> {
    let root = KustomizationRoot::first(files, folder)?;
    let mut top = layer::Layer::load(files, root, warnings)?;
    let BuildResources(mut built, rules) = top.accumulate(BuildResources::default(), warnings)?;
    hash::add(&mut built);
    references::update(&mut built, &rules.name_reference)?;
    vars::resolve(&mut built, &rules)?;
    built.retain(|resource| resource.object.annotation(LOCAL).is_none_or(|value| value == "false"));
    order::arrange(&mut built, top.file.sort_options.as_ref())?;
    Ok(built)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_details;
#[cfg(test)]
mod tests_of_plugins;
