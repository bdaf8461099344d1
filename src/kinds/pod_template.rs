//! PodTemplate (core/v1).

use super::catalogue::{merge_rules, shapes};
use super::pod::defaults;
use super::pod::spec::check_template;
use super::shared::omit;
use super::view;
use super::{FieldErrors, FieldPath, Kind, Typed};
use k8s_openapi::api::core::v1::PodTemplate;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    status: false,
    merge_rules: &merge_rules::WITH_TEMPLATE,
    shape: &shapes::WITH_TEMPLATE,
    returns_deleted: true,
    ..Kind::new::<PodTemplate>("podtemplates", "v1", "PodTemplate", &view::table_only::POD_TEMPLATE)
};

impl Typed for PodTemplate {
    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        defaults::set_template_defaults(self.template.get_or_insert_default());
    }

    fn validate(&self, _old: Option<&Self>, errors: &mut FieldErrors) {
        if let Some(template) = &self.template {
            check_template(template, &FieldPath::root("template"), errors);
        }
    }
}
