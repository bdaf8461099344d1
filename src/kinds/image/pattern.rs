//! Patterns of image names, with `*` for any text.
//!
//! Matching uses full names as in Docker: `nginx` is `docker.io/library/nginx`. A pattern without a tag or digest
//! matches every one; an image without either has the tag `latest`. A pattern that begins with `*` is matched against
//! the full name, so that `*/nginx` matches every registry. Paths (`./server`) are matched literally.
//!
//! [`glob`] compiles nothing, since every plan of a pod matches its image against every pattern.

use super::reference::{self, ImageReference};

/// Specificity of a match; the greatest takes precedence. The name counts first, then the digest, then the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PatternRank {
    name: PatternFit,
    digest: PatternFit,
    tag: PatternFit,
}

/// Specificity of a part: whether it has no star, then its length; the default for an absent part.
type PatternFit = (bool, usize);

/// A pattern's parts.
#[derive(Debug, PartialEq)]
pub struct ImagePattern<'a> {
    name: String,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

/// Whether an image is the path of a program.
pub fn is_path(image: &str) -> bool {
    ["./", "../", "/"].iter().any(|start| image.starts_with(start))
}

/// Parses a pattern.
pub fn parse(text: &str) -> Result<ImagePattern<'_>, String> {
    if is_path(text) {
        return Ok(ImagePattern { name: text.to_owned(), tag: None, digest: None });
    }
    let (name, tag, digest) = reference::split(text);
    let rest = text.split('@').next().unwrap_or(text);
    // With its stars replaced, the pattern must be a valid reference.
    reference::parse(&rest.replace('*', "x"))?;
    let is_digest = |digest: &str| {
        digest.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty() && !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'*')
        })
    };
    if !digest.is_none_or(|digest| digest == "*" || is_digest(digest)) {
        return Err("the digest must look like sha256:0123abc* ".trim_end().to_owned());
    }
    let name = if name.starts_with('*') { name.to_owned() } else { full_name(name) };
    Ok(ImagePattern { name, tag, digest })
}

/// Returns the specificity of a pattern for an image; `None` when it does not match.
pub fn rank(pattern: &str, image: &str) -> Option<PatternRank> {
    const NOTHING: PatternFit = (false, 0);
    let pattern = parse(pattern).ok()?;
    if is_path(image) || is_path(&pattern.name) {
        let fits = is_path(image) && is_path(&pattern.name) && glob(&pattern.name, image);
        return fits.then(|| PatternRank { name: fit(&pattern.name), digest: NOTHING, tag: NOTHING });
    }
    let ImageReference { domain, path, tag, digest } = reference::parse(image).ok()?;
    let name = full_name(&domain.map_or_else(|| path.to_owned(), |domain| format!("{domain}/{path}")));
    let tag = tag.or(digest.is_none().then_some("latest"));
    let fits = |pattern: Option<&str>, text: Option<&str>| match (pattern, text) {
        (None, _) => Some(NOTHING),
        (Some(pattern), text) => glob(pattern, text?).then(|| fit(pattern)),
    };
    Some(PatternRank {
        name: fits(Some(&pattern.name), Some(&name))?,
        digest: fits(pattern.digest, digest)?,
        tag: fits(pattern.tag, tag)?,
    })
}

/// The highest rank among patterns.
pub fn best<'a>(patterns: impl IntoIterator<Item = &'a str>, image: &str) -> Option<PatternRank> {
    patterns.into_iter().filter_map(|pattern| rank(pattern, image)).max()
}

fn fit(pattern: &str) -> PatternFit {
    (!pattern.contains('*'), 1 + pattern.chars().filter(|letter| *letter != '*').count())
}

/// The full_name name with its registry, as in Docker.
fn full_name(name: &str) -> String {
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path),
        _ => ("docker.io", name),
    };
    let domain = if domain == "index.docker.io" { "docker.io" } else { domain };
    let library = if domain == "docker.io" && !path.contains('/') { "library/" } else { "" };
    format!("{domain}/{library}{path}")
}

/// Whether a text matches a pattern with stars.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef";

    #[test]
    fn patterns_match_images() {
        let digested = format!("nginx@{DIGEST}");
        let table = [
            ("nginx", "nginx", true),
            ("nginx", "nginx:1.25", true),
            ("nginx", "docker.io/library/nginx:1.25", true),
            ("nginx", &digested, true),
            ("nginx", "bitnami/nginx", false),
            ("nginx", "ghcr.io/nginx", false),
            ("*/nginx", "ghcr.io/nginx", true),
            ("*/nginx", "nginx", true),
            ("*/nginx", "ghcr.io/my-nginx", false),
            ("bitnami/*", "bitnami/nginx:3", true),
            ("nginx:1.*", "nginx:1.25", true),
            ("nginx:1.*", "nginx", false),
            ("nginx:latest", "nginx", true),
            ("nginx:latest", &digested, false),
            ("nginx@sha256:0123*", &digested, true),
            ("nginx@sha256:9*", &digested, false),
            ("nginx@*", "nginx:1", false),
            ("*", "ghcr.io/a/b:c", true),
            ("*", "./server", false),
            ("./server", "./server", true),
            ("./*", "./server", true),
            ("./server", "server", false),
            ("localhost:5000/*:v1", "localhost:5000/a/b:v1", true),
            ("a*b*c", "docker.io/library/aXbYc", false),
            ("a*b*c", "axbyc", true),
        ];
        for (pattern, image, fits) in table {
            assert_eq!(rank(pattern, image).is_some(), fits, "{pattern} {image}");
        }
    }

    #[test]
    fn most_specific_pattern_has_the_highest_rank() {
        let image = format!("nginx:1.25@{DIGEST}");
        let exact = format!("nginx@{DIGEST}");
        let rising = [
            "*",
            "*:1.25",
            "*/nginx",
            "nginx*",
            "nginx",
            "nginx:*",
            "nginx:1.*",
            "nginx:1.25",
            "nginx@sha256:01*",
            &exact,
        ];
        for pair in rising.windows(2) {
            assert!(rank(pair[0], &image) < rank(pair[1], &image), "{pair:?}");
            assert!(rank(pair[0], &image).is_some(), "{pair:?}");
        }
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for text in ["", "a b", "Nginx", "a//b", "a@b", "a@sha256:", "a@sha256:xyz", ":1"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
