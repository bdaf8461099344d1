//! The catalogue: every built-in kind of the API, one file each.
//!
//! Defines a kind's names and scope ([`Kind`]), its typed form (the types of `k8s-openapi`), defaults, checks, columns
//! and description. Never: does I/O; a kind's functions map values to values. Start reading at [`ALL`]; a new kind
//! needs one new file, its `mod`, and one line there.
//!
//! Rules that several kinds share are in [`shared`], functions that work for every kind in [`catalogue`], custom resources in [`custom`],
//! columns and descriptions in [`view`].

pub mod catalogue;
pub mod custom;
pub mod device;
pub mod shared;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod view;

pub mod api_service;
pub mod certificate_signing_request;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod config_map;
pub mod controller_revision;
pub mod cron_job;
pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod custom_resource_definition;
pub mod daemon_set;
pub mod deployment;
pub mod device_class;
pub mod endpoint_slice;
pub mod endpoints;
pub mod event;
pub mod flow_schema;
pub mod horizontal_pod_autoscaler;
pub mod image;
pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod job;
pub mod lease;
pub mod limit_range;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_disruption_budget;
pub mod pod_template;
pub mod priority_class;
pub mod priority_level_configuration;
pub mod replica_set;
pub mod replication_controller;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_quota;
pub mod resource_slice;
pub mod role;
pub mod role_binding;
pub mod runtime_class;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod service_cidr;
pub mod stateful_set;
pub mod storage_class;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
pub mod volume_attachment;
pub mod volume_attributes_class;

pub use catalogue::read::UnknownField;
pub use catalogue::registry::KindRegistry;
pub use catalogue::selectable::selectable;
pub use catalogue::typed::{DecodeError, Typed};
pub use catalogue::version_priority::version_priority;
pub use shared::field::{FieldError, FieldErrors, FieldPath, NameRule};
pub use shared::metadata::validate_metadata;

use crate::object::merge::schema::MergeSchemaRef;
use crate::object::struct_shape::StructShape;
use crate::object::{Object, Resource, Time, split_api_version};
use serde_json::Value;
use std::borrow::Cow;

/// Converts a body to its stored form and reports unknown fields.
pub type Normalize = fn(&Value, &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError>;

/// Entry of the catalogue: names, traits and functions of one kind. The functions are those of the kind's [`Typed`]
/// implementation.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The resource, such as `deployments.apps`.
    pub resource: Resource,
    /// The version, such as `v1`.
    pub version: &'static str,
    /// The kind, such as `Deployment`.
    pub kind: &'static str,
    /// Short names, such as `deploy`.
    pub short: &'static [&'static str],
    /// Other `apiVersion`s that serve the same objects.
    pub also: &'static [&'static str],
    /// Converts a stored object to the version in `also`.
    pub to_also: fn(Object) -> Object,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Whether it has a `/status` subresource, which separates writes to spec and status.
    pub status: bool,
    /// Whether `metadata.generation` counts changes of its spec.
    pub generation: bool,
    /// Whether it has a `/scale` subresource (`spec.replicas`).
    pub scale: bool,
    /// The paths of its scale's fields, where they are not those of a Deployment.
    pub scale_paths: Option<&'static custom::ScalePaths>,
    /// Whether an update may leave out `resourceVersion`.
    pub unconditional_update: bool,
    /// Whether PUT may create it.
    pub create_on_update: bool,
    /// Syntax of the kind's names.
    pub name_rule: shared::field::NameRule,
    /// Warning for every request, when the kind is deprecated.
    pub deprecated: Option<&'static str>,
    /// Returns warnings about a valid object.
    pub warnings: fn(&Object) -> Vec<String>,
    /// Decodes strictly (unknown fields are reported to the callback by path), applies defaults, encodes again.
    pub normalize: Normalize,
    /// Resets fields that clients may not set, as Kubernetes' PrepareForCreate (`old` is `None`) and PrepareForUpdate
    /// do.
    pub prepare: fn(&mut Object, Option<&Object>),
    /// Sets the times of new parts of an object.
    pub set_times: fn(&mut Object, Time),
    /// Validates an object, on update against its old form.
    pub validate: fn(&Object, Option<&Object>) -> Vec<FieldError>,
    /// Checks the object by rules that only one version of the kind has; the version is the first argument.
    pub validate_version: fn(&str, &Object, Option<&Object>) -> Vec<FieldError>,
    /// Checks an object with another status against its old form.
    pub validate_status: fn(&Object, &Object) -> Vec<FieldError>,
    /// The definition of a custom resource, which then decodes and validates.
    pub custom: Option<&'static custom::CustomDefinition>,
    /// Its columns and its description.
    pub view: &'static view::KindView,
    /// Its rules of strategic merge patches: the keys of its lists.
    pub merge_rules: MergeSchemaRef,
    /// The parts of its fields that have an owner each after server-side apply.
    pub shape: &'static StructShape,
    /// Whether its deletion is answered with the object's last state rather than a Status (`ReturnDeletedObject` of
    /// Kubernetes' registries).
    pub returns_deleted: bool,
    /// Whether a deletion by a client that names no propagation policy keeps the dependents (`DefaultGarbageCollectionPolicy` of
    /// Kubernetes' strategies).
    pub orphans_dependents: bool,
    /// The fields of metadata that a client may change when it writes the status; Kubernetes' strategies differ.
    pub status_metadata: &'static [&'static str],
    /// The fields for field selectors besides name and namespace.
    pub selectable: &'static [&'static str],
}

impl Kind {
    /// A cluster-scoped kind whose objects are kept as they are written, to be refined with `..`.
    const UNTYPED: Kind = Kind {
        resource: Resource(""),
        version: "",
        kind: "",
        short: &[],
        also: &[],
        to_also: |object| object,
        namespaced: false,
        categories: &[],
        status: false,
        generation: true,
        scale: false,
        scale_paths: None,
        unconditional_update: false,
        create_on_update: false,
        name_rule: shared::field::NameRule::Subdomain,
        deprecated: None,
        warnings: |_| Vec::new(),
        normalize: |body, _| Ok(body.clone()),
        prepare: |_, _| {},
        set_times: |_, _| {},
        validate: |_, _| Vec::new(),
        validate_version: |_, _, _| Vec::new(),
        validate_status: |_, _| Vec::new(),
        custom: None,
        view: &view::generic::VIEW,
        merge_rules: &catalogue::merge_rules::OBJECT,
        shape: &catalogue::shapes::OBJECT,
        returns_deleted: false,
        orphans_dependents: false,
        status_metadata: &[],
        selectable: &[],
    };

    /// A kind with Kubernetes' usual traits (status, generation, unconditional update), to be refined with `..`.
    pub const fn new<T: Typed>(
        resource: &'static str,
        version: &'static str,
        kind: &'static str,
        view: &'static view::KindView,
    ) -> Kind {
        Kind {
            resource: Resource(resource),
            version,
            kind,
            namespaced: true,
            status: true,
            unconditional_update: true,
            warnings: pod::warnings::warn_about_template,
            normalize: catalogue::typed::normalize::<T>,
            prepare: T::prepare,
            validate: catalogue::typed::validate::<T>,
            view,
            status_metadata: &["annotations", "finalizers", "ownerReferences", "labels"],
            ..Kind::UNTYPED
        }
    }

    /// The group and version, such as `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        match self.resource.group() {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Its singular name: the kind in lower case, unless its definition declares another.
    pub fn singular(&self) -> String {
        self.custom.map_or_else(|| self.kind.to_ascii_lowercase(), |custom| custom.singular.to_owned())
    }

    /// Whether the definition of this name declares it.
    pub fn is_declared_by(&self, definition: &str) -> bool {
        self.custom.is_some_and(|custom| custom.definition == definition)
    }

    /// Returns a stored object of a built-in kind in one of its versions.
    pub fn to_version(&self, object: Object, api_version: &str) -> Object {
        let is_stored = object.kind() == self.kind && object.api_version() != api_version;
        if is_stored && self.also.contains(&api_version) { (self.to_also)(object) } else { object }
    }

    /// Returns the older version of the kind that a user's text such as `hpa.v1.autoscaling` names; `None` where it names the stored one.
    pub fn other_version(&self, text: &str) -> Option<&'static str> {
        let (_, version) = text.split_once('.')?;
        let version = version.to_ascii_lowercase();
        let is_stored = names_version(&version, &self.api_version(), false);
        self.also.iter().copied().filter(|_| !is_stored).find(|other| names_version(&version, other, false))
    }

    /// Returns the kind in one of its versions: the subresources of a custom resource depend on the version.
    pub fn in_version(&'static self, api_version: &str) -> &'static Kind {
        self.custom.and_then(|custom| custom.variant(api_version)).unwrap_or(self)
    }

    /// The paths of the desired and the observed replicas.
    pub fn replicas(&self) -> (Vec<&str>, Vec<&str>) {
        let steps = |path: &'static [String]| path.iter().map(String::as_str).collect();
        match self.scale_paths {
            Some(paths) => (steps(&paths.wanted), steps(&paths.seen)),
            None => (vec!["spec", "replicas"], vec!["status", "replicas"]),
        }
    }

    /// Returns the stored form of a body; unknown fields are reported.
    pub fn normalized(&self, body: &Value, unknown: &mut dyn FnMut(UnknownField)) -> Result<Value, DecodeError> {
        match self.custom {
            Some(custom) => custom.normalize(body, unknown),
            None => (self.normalize)(body, unknown),
        }
    }

    /// Validates an object of this version, on update against its old form.
    pub fn wrongs(&self, api_version: &str, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
        match self.custom {
            Some(custom) => custom.validate(api_version, object, old),
            None => {
                let mut errors = (self.validate)(object, old);
                errors.extend((self.validate_version)(api_version, object, old));
                errors
            }
        }
    }

    /// Returns the warning for users of a deprecated version.
    pub fn deprecation(&self, api_version: &str) -> Option<&'static str> {
        self.custom.map_or(self.deprecated, |custom| custom.deprecations.get(api_version).copied())
    }

    /// The kind of lists, such as `DeploymentList`.
    pub fn list_kind(&self) -> Cow<'static, str> {
        match self.custom {
            Some(custom) => Cow::Borrowed(&custom.list_kind),
            None => Cow::Owned(format!("{}List", self.kind)),
        }
    }

    /// The singular name with the group, such as `deployment.apps`, as in kubectl's messages.
    pub fn qualified_singular(&self) -> String {
        match self.resource.group() {
            "" => self.singular(),
            group => format!("{}.{group}", self.singular()),
        }
    }
}

/// Every built-in kind, in the order of Kubernetes' discovery (core first, then by group).
pub static ALL: &[&Kind] = &[
    &config_map::KIND,
    &endpoints::KIND,
    &event::KIND,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &persistent_volume_claim::KIND,
    &persistent_volume::KIND,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &secret::KIND,
    &service_account::KIND,
    &service::KIND,
    &mutating_admission_policy::KIND,
    &mutating_admission_policy_binding::KIND,
    &mutating_webhook_configuration::KIND,
    &validating_admission_policy::KIND,
    &validating_admission_policy_binding::KIND,
    &validating_webhook_configuration::KIND,
    &custom_resource_definition::KIND,
    &api_service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &horizontal_pod_autoscaler::KIND,
    &cron_job::KIND,
    &job::KIND,
    &certificate_signing_request::KIND,
    &lease::KIND,
    &endpoint_slice::KIND,
    &flow_schema::KIND,
    &priority_level_configuration::KIND,
    &ingress_class::KIND,
    &ingress::KIND,
    &ip_address::KIND,
    &network_policy::KIND,
    &service_cidr::KIND,
    &runtime_class::KIND,
    &pod_disruption_budget::KIND,
    &cluster_role_binding::KIND,
    &cluster_role::KIND,
    &role_binding::KIND,
    &role::KIND,
    &device_class::KIND,
    &resource_claim::KIND,
    &resource_claim_template::KIND,
    &resource_slice::KIND,
    &priority_class::KIND,
    &csi_driver::KIND,
    &csi_node::KIND,
    &csi_storage_capacity::KIND,
    &storage_class::KIND,
    &volume_attachment::KIND,
    &volume_attributes_class::KIND,
    &image::KIND,
];

/// Returns why an object of another kind is refused, in the words of Kubernetes' converter.
pub fn wrong_kind(kind: &Kind, api_version: &str, found: &str) -> String {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    match by_kind(api_version, found) {
        Some(other) => {
            let group = kind.resource.group().split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
            format!("converting ({version}.{}) to ({group}.{}): unknown conversion", other.kind, kind.kind)
        }
        None => format!("no kind {found:?} is registered for version {api_version:?}"),
    }
}

/// The built-in kind of an object by its `apiVersion` and `kind`. [`KindRegistry::by_kind`] includes custom kinds.
pub fn by_kind(api_version: &str, kind: &str) -> Option<&'static Kind> {
    ALL.iter().copied().find(|known| fits_kind(known, api_version, kind))
}

/// The built-in kind of a resource such as `deployments.apps`. [`KindRegistry::by_resource`] includes custom kinds.
pub fn by_resource(resource: Resource) -> Option<&'static Kind> {
    ALL.iter().copied().find(|known| known.resource == resource)
}

/// The built-in kind by a name from the user. [`KindRegistry::by_name`] includes custom kinds.
pub fn by_name(name: &str) -> Option<&'static Kind> {
    find_by_name(ALL, name)
}

fn fits_kind(known: &Kind, api_version: &str, kind: &str) -> bool {
    known.kind == kind && (known.api_version() == api_version || known.also.contains(&api_version))
}

/// Whether an API version is the one that a user's text such as `hpa.v1.autoscaling` or `events.events.k8s.io` names behind the type. As in
/// kubectl, a short name matches the kind in every version.
fn names_version(text: &str, api_version: &str, is_short: bool) -> bool {
    let (group, version) = split_api_version(api_version);
    let is_this = |asked: (&str, &str)| asked.1 == group && (is_short || asked.0 == version);
    text.is_empty() || group == text || text.split_once('.').is_some_and(is_this)
}

/// Finds a kind by a user's text: plural, singular, short name or kind in any case, optionally with `.group` or
/// `.version.group`.
fn find_by_name(kinds: &[&'static Kind], name: &str) -> Option<&'static Kind> {
    let lower = name.to_ascii_lowercase();
    // Only short names are case-sensitive.
    let first = name.split('.').next().unwrap_or(name);
    let (word, rest) = lower.split_once('.').unwrap_or((lower.as_str(), ""));
    let named = |kind: &Kind| {
        // With a group, also the name of the kind, from which the singular may differ.
        let is_kind = !rest.is_empty() && kind.kind.eq_ignore_ascii_case(word);
        kind.short.contains(&first) || kind.resource.plural() == word || kind.singular() == word || is_kind
    };
    let in_group = |kind: &Kind| {
        let is_short = kind.short.contains(&first);
        let is_named = |api_version: &str| names_version(rest, api_version, is_short);
        is_named(&kind.api_version()) || kind.also.iter().any(|other| is_named(other))
    };
    let short = |kind: &Kind| rest.is_empty() && !name.contains('.') && kind.short.contains(&first);
    let full = |kind: &Kind| named(kind) && in_group(kind);
    let find = |fits: &dyn Fn(&Kind) -> bool| kinds.iter().copied().find(|kind| fits(kind));
    find(&short).or_else(|| find(&full))
}
