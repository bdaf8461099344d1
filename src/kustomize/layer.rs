//! One kustomization: collects its resources, and transforms them in kustomize's order.

use super::file::{self, FieldSpec, GeneratorEntry, GeneratorOptions, Kustomization, ResourceSelector};
use super::generate::{self, GeneratedKind};
use super::namespace::NamespaceOptions;
use super::resource::{BuildResource, BuildResources, ORIGIN, Origin};
use super::root::{FileAccess, FileText, FoundPath, KustomizationRoot};
use super::rules::Rules;
use super::{BuildResult, affix, images, labels, namespace, patch, plugins, replacements, replicas, vars};
use crate::object::Object;
use crate::object::yaml::YamlDocument;
use serde_json::Value;
use std::path::PathBuf;
use std::rc::Rc;

/// Maximum depth of nested kustomizations.
const MAX_DEPTH: usize = 64;

/// The version of kustomize in kubectl 1.36.
pub const VERSION: &str = "v5.8.1";

/// Start of the annotation [`ORIGIN`] for an object from a file.
const ORIGIN_PATH: &str = "path: ";

/// A parsed kustomization.
pub struct Layer<'f> {
    files: &'f dyn FileAccess,
    root: KustomizationRoot,
    /// Its content.
    pub file: Kustomization,
    document: Rc<YamlDocument>,
    shown: PathBuf,
    at: PathBuf,
    depth: usize,
}

impl<'f> Layer<'f> {
    /// Reads the kustomization of a folder.
    pub fn load(
        files: &'f dyn FileAccess,
        root: KustomizationRoot,
        warnings: &mut Vec<String>,
    ) -> BuildResult<Layer<'f>> {
        let text = root.kustomization(files)?;
        let read = file::read(&text, warnings)?;
        let FileText { shown, at, .. } = text;
        Ok(Layer { files, root, file: read.kustomization, document: read.document, shown, at, depth: 0 })
    }

    /// Adds this layer's resources to the given ones, and transforms all of them.
    pub fn accumulate(
        &mut self,
        mut resources: BuildResources,
        warnings: &mut Vec<String>,
    ) -> BuildResult<BuildResources> {
        for (field, paths) in [("resources", self.file.resources.clone()), ("bases", self.file.bases.clone())] {
            for (at, path) in paths.iter().enumerate() {
                self.resource(&mut resources, path, warnings).map_err(|why| {
                    self.with_hint(format!("accumulating resources: {why}"), &format!("{field}[{at}]"))
                })?;
            }
        }
        for (at, path) in self.file.configurations.iter().enumerate() {
            let rules = self.root.read(self.files, path).and_then(|text| Rules::read(&text));
            resources.1.merge(rules.map_err(|why| self.with_hint(why, &format!("configurations[{at}]")))?);
        }
        self.generate(&mut resources)?;
        self.run_generators(&mut resources, warnings)?;
        for (at, path) in self.file.components.iter().enumerate() {
            resources = self.component(resources, path, warnings).map_err(|why| {
                self.with_hint(format!("accumulating components: {why}"), &format!("components[{at}]"))
            })?;
        }
        self.transform(&mut resources, warnings)?;
        for (field, config) in self.plugins("transformers", &self.file.transformers, warnings)? {
            plugins::transform(&mut resources, self.files, &self.root, &config)
                .map_err(|why| self.with_hint(why, &field))?;
        }
        vars::add(&mut resources, &self.file.vars).map_err(|why| self.with_hint(why, "vars"))?;
        Ok(resources)
    }

    fn run_generators(&self, resources: &mut BuildResources, warnings: &mut Vec<String>) -> BuildResult {
        for (field, config) in self.plugins("generators", &self.file.generators, warnings)? {
            let (kind, generator) = plugins::generator(&config).map_err(|why| self.with_hint(why, &field))?;
            let make = if kind == "SecretGenerator" { GeneratedKind::Secret } else { GeneratedKind::ConfigMap };
            let file = config.object.annotation(ORIGIN).and_then(|text| text.strip_prefix(ORIGIN_PATH));
            let generator = self.with_origin(&generator, make, file.map(str::trim_end), config.object.name());
            let how = (&generator, &GeneratorOptions::default());
            generate::add(resources, (self.files, &self.root), make, how, config.origin.clone())
                .map_err(|why| self.with_hint(format!("merging from generator: {why}"), &field))?;
        }
        Ok(())
    }

    /// Returns the configurations of plugins. An entry is a file, a folder with a kustomization, or
    /// an inline document.
    fn plugins(
        &self,
        field: &str,
        entries: &[String],
        warnings: &mut Vec<String>,
    ) -> BuildResult<Vec<(String, BuildResource)>> {
        let mut found = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let field = format!("{field}[{at}]");
            let mut configs = BuildResources::default();
            match entry.contains('\n') || entry.contains(": ") {
                true => {
                    let text =
                        FileText { shown: self.shown.clone(), at: self.at.clone(), bytes: entry.clone().into_bytes() };
                    self.objects_of(&mut configs, text, &self.file_name())
                }
                false => self.resource(&mut configs, entry, warnings),
            }
            .map_err(|why| self.with_hint(why, &field))?;
            found.extend(configs.0.into_iter().map(|config| (field.clone(), config)));
        }
        Ok(found)
    }

    /// Adds the objects of a file, or of the kustomization in a folder.
    fn resource(&self, resources: &mut BuildResources, path: &str, warnings: &mut Vec<String>) -> BuildResult {
        if path.is_empty() {
            return Err("an empty path".to_owned());
        }
        let found = self.root.find(self.files, path).map_err(|why| match why.starts_with("evalsymlink") {
            true => format!(
                "accumulation err='accumulating resources from '{path}': {why}': must build at directory: not a valid \
                 directory: {why}"
            ),
            false => why,
        })?;
        match found {
            FoundPath::File(_) => {
                self.objects(resources, path).map_err(|why| format!("accumulating resources from '{path}': {why}"))
            }
            FoundPath::Folder(_) => {
                let mut layer = self.enter(path, warnings)?;
                if layer.file.is_component() {
                    return Err(format!("expected kind != 'Component' for path '{}'", layer.root.at.display()));
                }
                let at = layer.root.at.display().to_string();
                let below = layer.accumulate(BuildResources::default(), warnings);
                resources.add_all(below.map_err(|why| format!("recursed accumulation of path '{at}': {why}"))?)
            }
        }
    }

    /// Applies a component, which transforms the existing resources.
    fn component(
        &self,
        resources: BuildResources,
        path: &str,
        warnings: &mut Vec<String>,
    ) -> BuildResult<BuildResources> {
        let mut layer = self.enter(path, warnings)?;
        if !layer.file.is_component() {
            let (root, kind) = (layer.root.at.display(), &layer.file.kind);
            let kind = if kind.is_empty() { "Kustomization" } else { kind };
            return Err(format!("expected kind 'Component' for path '{root}' but got '{kind}'"));
        }
        layer.accumulate(resources, warnings)
    }

    fn enter(&self, path: &str, warnings: &mut Vec<String>) -> BuildResult<Layer<'f>> {
        let root = self.root.enter(self.files, path)?;
        if self.depth == MAX_DEPTH {
            return Err(format!("kustomizations are nested more than {MAX_DEPTH} deep"));
        }
        let at = root.at.display().to_string();
        let mut layer = Layer::load(self.files, root, warnings)
            .map_err(|why| format!("couldn't make target for path '{at}': {why}"))?;
        layer.depth = self.depth + 1;
        layer.file.build_metadata.clone_from(&self.file.build_metadata);
        Ok(layer)
    }

    fn objects(&self, resources: &mut BuildResources, path: &str) -> BuildResult {
        let text = self.root.read(self.files, path)?;
        self.objects_of(resources, text, path)
    }

    fn objects_of(&self, resources: &mut BuildResources, text: FileText, path: &str) -> BuildResult {
        for mut document in file::documents(&text)? {
            let (value, line) = (document.value.take(), document.line);
            let document = Rc::new(document);
            let (shown, at) = (text.shown.clone(), text.at.clone());
            let origin = Origin { shown, at, document, path_prefix: String::new(), line };
            self.object(resources, value, origin, path)?;
        }
        Ok(())
    }

    /// Adds an object, or the items of a list.
    fn object(&self, resources: &mut BuildResources, value: Value, origin: Origin, path: &str) -> BuildResult {
        let mut object = Object(value);
        let refuse =
            |what: &str, help: &str| format!("{what}\nhint: {}:{}: {help}", origin.shown.display(), origin.line);
        if !object.0.is_object() {
            return Err(refuse("invalid object", "expected fields such as apiVersion and kind"));
        }
        if object.kind().is_empty() {
            return Err(refuse("missing kind in object", "expected fields such as apiVersion and kind"));
        }
        if object.kind().ends_with("List") && object.0["items"].is_array() {
            let Value::Array(items) = object.0["items"].take() else { return Ok(()) };
            return items.into_iter().enumerate().try_for_each(|(at, item)| {
                self.object(resources, item, Origin { path_prefix: format!("items[{at}]"), ..origin.clone() }, path)
            });
        }
        if object.name().is_empty() {
            let what = format!("missing metadata.name in object {} {}", object.api_version(), object.kind());
            return Err(refuse(&what, "kustomize identifies objects by name"));
        }
        patch::remove_empty_annotations(&mut object);
        labels::annotations_to_text(&mut object, &origin);
        if self.records_origin() {
            object.set(
                &["metadata", "annotations", ORIGIN],
                format!("{ORIGIN_PATH}{}\n", self.root.path_from_top_to(path).display()),
            );
        }
        resources.add(BuildResource::new(object, origin))
    }

    /// With `originAnnotations`, adds an annotation with the file that configures the generator:
    /// `file`, or this kustomization.
    fn with_origin(
        &self,
        generator: &GeneratorEntry,
        make: GeneratedKind,
        file: Option<&str>,
        name: &str,
    ) -> GeneratorEntry {
        let mut generator = generator.clone();
        if self.records_origin() {
            let this_file = self.root.path_from_top_to(&self.file_name()).display().to_string();
            let kind = if make == GeneratedKind::Secret { "SecretGenerator" } else { "ConfigMapGenerator" };
            let name = if name.is_empty() { String::new() } else { format!("  name: {name}\n") };
            let text = format!(
                "configuredIn: {}\nconfiguredBy:\n  apiVersion: builtin\n  kind: {kind}\n{name}",
                file.unwrap_or(&this_file)
            );
            generator.options.annotations.insert(ORIGIN.to_owned(), text);
        }
        generator
    }

    fn file_name(&self) -> String {
        self.at.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn records_origin(&self) -> bool {
        self.file.build_metadata.iter().any(|option| option == "originAnnotations")
    }

    fn generate(&self, resources: &mut BuildResources) -> BuildResult {
        let all = [
            ("configMapGenerator", GeneratedKind::ConfigMap, &self.file.config_map_generator),
            ("secretGenerator", GeneratedKind::Secret, &self.file.secret_generator),
        ];
        for (field, make, generators) in all {
            for (at, generator) in generators.iter().enumerate() {
                let path_prefix = format!("{field}[{at}]");
                let origin = Origin {
                    shown: self.shown.clone(),
                    at: self.at.clone(),
                    document: self.document.clone(),
                    line: self.document.line_of(&path_prefix).unwrap_or(self.document.line),
                    path_prefix: path_prefix.clone(),
                };
                let generator = self.with_origin(generator, make, None, "");
                let how = (&generator, &self.file.generator_options);
                generate::add(resources, (self.files, &self.root), make, how, origin)
                    .map_err(|why| self.with_hint(format!("merging from generator: {why}"), &path_prefix))?;
            }
        }
        Ok(())
    }

    fn transform(&self, resources: &mut BuildResources, warnings: &mut Vec<String>) -> BuildResult {
        let (file, files, root) = (&self.file, self.files, &self.root);
        let rules = resources.1.clone();
        for (at, entry) in file.patches_strategic_merge.iter().enumerate() {
            patch::apply_strategic(resources, files, root, entry)
                .map_err(|why| self.with_hint(why, &format!("patchesStrategicMerge[{at}]")))?;
        }
        for (at, entry) in file.patches.iter().enumerate() {
            let field = format!("patches[{at}]");
            let found = patch::apply(resources, files, root, entry).map_err(|why| self.with_hint(why, &field))?;
            if !found && !entry.options.allow_no_target_match {
                warnings.push(self.unmatched_warning(&field, entry.target.as_ref()));
            }
        }
        if !file.namespace.is_empty() {
            let how = NamespaceOptions { fields: &rules.namespace, ..NamespaceOptions::default() };
            namespace::set(resources, &file.namespace, &how).map_err(|why| self.with_hint(why, "namespace"))?;
        }
        let named = |more: &[FieldSpec]| [&[FieldSpec::for_all_kinds(affix::NAME)], more].concat();
        affix::add_prefix(&mut resources.0, &file.name_prefix, &named(&rules.name_prefix));
        affix::add_suffix(&mut resources.0, &file.name_suffix, &named(&rules.name_suffix));
        file.labels.iter().for_each(|label| labels::add(&mut resources.0, label, &rules));
        labels::add_common(&mut resources.0, &file.common_labels, &rules);
        labels::annotate(&mut resources.0, &file.common_annotations, &rules);
        for (at, entry) in file.patches_json.iter().enumerate() {
            let field = format!("patchesJson6902[{at}]");
            let found = patch::apply_json(resources, files, root, entry).map_err(|why| self.with_hint(why, &field))?;
            if !found {
                warnings.push(self.unmatched_warning(&field, entry.target.as_ref()));
            }
        }
        for (at, wanted) in file.replicas.iter().enumerate() {
            replicas::set(&mut resources.0, wanted, &rules.replicas)
                .map_err(|why| self.with_hint(why, &format!("replicas[{at}]")))?;
        }
        for rule in file.images.iter().chain(&file.image_tags) {
            images::set(&mut resources.0, rule, &rules.images).map_err(|why| self.with_hint(why, "images"))?;
        }
        for (at, entry) in file.replacements.iter().enumerate() {
            replacements::apply(&mut resources.0, files, root, entry)
                .map_err(|why| self.with_hint(why, &format!("replacements[{at}]")))?;
        }
        self.apply_build_metadata(resources)
    }

    /// Applies the options of `buildMetadata` that concern all objects.
    fn apply_build_metadata(&self, resources: &mut BuildResources) -> BuildResult {
        for option in &self.file.build_metadata {
            match option.as_str() {
                "managedByLabel" => resources.0.iter_mut().for_each(|resource| {
                    resource
                        .object
                        .set(&["metadata", "labels", "app.kubernetes.io/managed-by"], format!("kustomize-{VERSION}"));
                }),
                "originAnnotations" => {}
                option => {
                    let why = format!("kloop does not support {option:?} in buildMetadata");
                    return Err(self.with_hint(why, "buildMetadata"));
                }
            }
        }
        Ok(())
    }

    /// Returns the warning about a patch whose target matches no object.
    fn unmatched_warning(&self, field: &str, target: Option<&ResourceSelector>) -> String {
        let target = target.map(describe_target).unwrap_or_default();
        format!("Warning: {}: the patch changes nothing: no object matches {target}", self.place(field))
    }

    /// Returns file and line of a field of the kustomization.
    fn place(&self, field: &str) -> String {
        let line = self.document.line_of(field).unwrap_or(self.document.line);
        format!("{}:{line}", self.shown.display())
    }

    /// Adds file and line to an error, unless it already has them.
    fn with_hint(&self, why: String, field: &str) -> String {
        if why.contains("\nhint: ") { why } else { format!("{why}\nhint: {}: {field}", self.place(field)) }
    }
}

/// Describes a target in words.
fn describe_target(target: &ResourceSelector) -> String {
    let parts = [
        ("group", &target.group),
        ("version", &target.version),
        ("kind", &target.kind),
        ("name", &target.name),
        ("namespace", &target.namespace),
        ("labels", &target.label_selector),
        ("annotations", &target.annotation_selector),
    ];
    let words = parts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("{name} {text}"));
    words.collect::<Vec<_>>().join(", ")
}
