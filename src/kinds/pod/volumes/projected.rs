//! `projected`: several sources in one folder.

use super::files::{FILE_MODE, check_downward_file, check_files, check_mode, fill_in_downward_file};
use super::{VolumeType, check_named};
use crate::kinds::pod::paths;
use crate::kinds::shared::omit::empty;
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, KeyToPath, ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};
use std::collections::BTreeSet;

impl VolumeType for ProjectedVolumeSource {
    fn field(&self) -> &'static str {
        "projected"
    }

    fn is_made_of_objects(&self) -> bool {
        true
    }

    fn names_objects(&self) -> bool {
        // Every pod mounts this one, and none waits for it.
        let is_named = |map: &ConfigMapProjection| map.name != "kube-root-ca.crt";
        let mut sources = self.sources.iter().flatten();
        sources.any(|source| source.secret.is_some() || source.config_map.as_ref().is_some_and(is_named))
    }

    fn fill_in_defaults(&mut self) {
        self.default_mode.get_or_insert(FILE_MODE);
        for source in self.sources.iter_mut().flatten() {
            if let Some(token) = &mut source.service_account_token {
                empty(&mut token.audience);
                token.expiration_seconds.get_or_insert(3600);
            }
            if let Some(downward) = &mut source.downward_api {
                empty(&mut downward.items);
                downward.items.iter_mut().flatten().for_each(fill_in_downward_file);
            }
            source.config_map.iter_mut().for_each(|map| empty(&mut map.items));
            source.secret.iter_mut().for_each(|secret| empty(&mut secret.items));
        }
    }

    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        check_mode("defaultMode", self.default_mode, path, errors);
        let mut used_paths = BTreeSet::new();
        for (index, source) in self.sources.iter().flatten().enumerate() {
            check_source(source, path, &path.child("sources").index(index), errors);
            check_paths(source, &mut used_paths, path, errors);
        }
    }
}

/// Refuses duplicate paths of files in a volume. As in Kubernetes, paths of tokens do not count.
fn check_paths<'s>(
    source: &'s VolumeProjection,
    used_paths: &mut BTreeSet<&'s str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let secret = source.secret.iter().flat_map(|from| keys(&from.name, from.items.as_deref()));
    let map = source.config_map.iter().flat_map(|from| keys(&from.name, from.items.as_deref()));
    let downward = source.downward_api.iter().flat_map(|from| from.items.iter().flatten());
    let downward = downward.map(|item| (item.path.as_str(), item.path.as_str()));
    for (file, named) in secret.chain(map).chain(downward).filter(|(file, _)| !file.is_empty()) {
        if !used_paths.insert(file) {
            errors.invalid(path, named, "conflicting duplicate paths");
        }
    }
}

/// The paths of keys, each with the name of its object.
fn keys<'s>(name: &'s str, items: Option<&'s [KeyToPath]>) -> impl Iterator<Item = (&'s str, &'s str)> {
    items.unwrap_or_default().iter().map(move |item| (item.path.as_str(), name))
}

fn check_source(source: &VolumeProjection, volume_path: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    let mut count = 0;
    if let Some(secret) = &source.secret {
        count += 1;
        check_named("name", Some(&secret.name), &path.child("secret"), errors);
        check_files(None, secret.items.as_deref(), &path.child("secret"), errors);
    }
    if let Some(map) = &source.config_map {
        count += 1;
        check_named("name", Some(&map.name), &path.child("configMap"), errors);
        check_files(None, map.items.as_deref(), &path.child("configMap"), errors);
    }
    if let Some(downward) = &source.downward_api {
        count += 1;
        let items = downward.items.as_deref().unwrap_or_default();
        items.iter().for_each(|file| check_downward_file(file, &path.child("downwardAPI"), errors));
    }
    if let Some(token) = &source.service_account_token {
        count += 1;
        check_token(token, volume_path, &path.child("serviceAccountToken"), errors);
    }
    if count > 1 {
        errors.forbidden(path, "may not specify more than 1 volume type per source");
    }
}

/// Checks a token. As in Kubernetes, the errors of its file have the path of the volume.
fn check_token(
    token: &ServiceAccountTokenProjection,
    volume_path: &FieldPath,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let seconds = token.expiration_seconds.unwrap_or(3600);
    let at = path.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&at, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    paths::check_file(&token.path, &volume_path.child("path"), errors);
}
