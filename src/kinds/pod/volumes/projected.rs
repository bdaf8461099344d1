//! Checks of projected volumes: several sources in one folder.

use super::{check_downward_file, check_files, check_mode, check_named};
use crate::kinds::{Errors, Path};
use k8s_openapi::api::core::v1::{ProjectedVolumeSource, ServiceAccountTokenProjection, VolumeProjection};

/// Checks every source.
pub fn check(all: &ProjectedVolumeSource, path: &Path, errors: &mut Errors) {
    check_mode("defaultMode", all.default_mode, path, errors);
    for (index, source) in all.sources.iter().flatten().enumerate() {
        check_source(source, &path.child("sources").index(index), errors);
    }
}

fn check_source(source: &VolumeProjection, path: &Path, errors: &mut Errors) {
    let mut sources = 0;
    let mut first = |field: &str, errors: &mut Errors| {
        sources += 1;
        if sources > 1 {
            errors.forbidden(&path.child(field), "may not specify more than 1 volume type");
        }
        sources == 1
    };
    if let Some(secret) = &source.secret
        && first("secret", errors)
    {
        check_named("name", Some(&secret.name), &path.child("secret"), errors);
        check_files(None, secret.items.as_deref(), &path.child("secret"), errors);
    }
    if let Some(map) = &source.config_map
        && first("configMap", errors)
    {
        check_named("name", Some(&map.name), &path.child("configMap"), errors);
        check_files(None, map.items.as_deref(), &path.child("configMap"), errors);
    }
    if let Some(downward) = &source.downward_api
        && first("downwardAPI", errors)
    {
        let items = downward.items.as_deref().unwrap_or_default();
        items.iter().for_each(|file| check_downward_file(file, &path.child("downwardAPI"), errors));
    }
    if let Some(token) = &source.service_account_token
        && first("serviceAccountToken", errors)
    {
        check_token(token, &path.child("serviceAccountToken"), errors);
    }
    let others = [source.cluster_trust_bundle.is_some(), source.pod_certificate.is_some()];
    if sources == 0 && others == [false, false] {
        errors.required(path, "must specify a volume type");
    }
}

fn check_token(token: &ServiceAccountTokenProjection, path: &Path, errors: &mut Errors) {
    let seconds = token.expiration_seconds.unwrap_or(3600);
    let at = path.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&at, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    super::paths::check_file(&token.path, &path.child("path"), errors);
}
