//! Image references: `[host[:port]/]path[:tag][@digest]`.
//!
//! Grammar and messages of `distribution/reference`, which Kubernetes uses.

/// The parts of a reference.
#[derive(Debug, PartialEq)]
pub struct ImageReference<'a> {
    /// The registry, if given.
    pub domain: Option<&'a str>,
    /// The repository's path.
    pub path: &'a str,
    /// The tag.
    pub tag: Option<&'a str>,
    /// The digest.
    pub digest: Option<&'a str>,
}

/// Splits a reference into name, tag and digest, without a check of any. The name may have a port.
pub fn split(text: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag), digest),
        _ => (rest, None, digest),
    }
}

/// Parses a reference; the error has Kubernetes' wording.
pub fn parse(text: &str) -> Result<ImageReference<'_>, String> {
    let wrong = || "invalid reference format".to_owned();
    let (name, tag, digest) = split(text);
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if is_domain(first) => (Some(first), path),
        _ => (None, name),
    };
    if !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return Err(wrong());
    }
    if path.len() > 255 {
        return Err("repository name must not be more than 255 characters".into());
    }
    if !path.split('/').all(is_component) {
        let lowered = path.to_ascii_lowercase();
        let only_case = lowered != path && lowered.split('/').all(is_component);
        return Err(if only_case {
            format!("{}: repository name ({path}) must be lowercase", wrong())
        } else {
            wrong()
        });
    }
    Ok(ImageReference { domain, path, tag, digest })
}

/// The last part of an image's repository, its common name.
pub fn name(image: &str) -> &str {
    let path = parse(image).map_or(image, |parsed| parsed.path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the first part is a host: it has a dot, a port, or capitals (which no repository has), or is `localhost`.
fn is_domain(first: &str) -> bool {
    let (host, port) = first.split_once(':').map_or((first, None), |(host, port)| (host, Some(port)));
    let looks_like = first.contains(['.', ':']) || first == "localhost" || first.to_ascii_lowercase() != first;
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let fits = host.split('.').all(label);
    let numeric = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    looks_like && fits && port.is_none_or(numeric)
}

/// Whether a text has only letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut separators = text.split(|c: char| c.is_ascii() && is_word(c as u8)).filter(|part| !part.is_empty());
    let fits = separators.all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'));
    let edges = [text.bytes().next(), text.bytes().next_back()];
    fits && edges.into_iter().all(|edge| edge.is_some_and(is_word))
}

fn is_tag(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && text.len() <= 128 && text.bytes().all(fits)
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let starts = algorithm.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    starts && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_into_parts() {
        let table = [
            ("nginx", (None, "nginx", None)),
            ("nginx:1.25", (None, "nginx", Some("1.25"))),
            ("library/nginx", (None, "library/nginx", None)),
            ("localhost/x", (Some("localhost"), "x", None)),
            ("localhost:5000/x:v1", (Some("localhost:5000"), "x", Some("v1"))),
            ("gcr.io/a/b_c/d--e:latest", (Some("gcr.io"), "a/b_c/d--e", Some("latest"))),
            ("Host/x", (Some("Host"), "x", None)),
        ];
        for (text, (domain, path, tag)) in table {
            assert_eq!(parse(text), Ok(ImageReference { domain, path, tag, digest: None }), "{text}");
        }
        let digest = "sha256:0123456789abcdef0123456789abcdef";
        assert_eq!(
            parse(&format!("a:1@{digest}")).map(|found| (found.tag, found.digest)),
            Ok((Some("1"), Some(digest)))
        );
    }

    #[test]
    fn malformed_references_are_refused() {
        for text in
            ["", ":", "a:", "a b", "a//b", "-a", "a-", "a___b", "a..b", "a@b", "a:b:c", "a@sha256:12", "ü", "a/"]
        {
            assert_eq!(parse(text), Err("invalid reference format".into()), "{text:?}");
        }
        let upper = parse("Nginx").expect_err("upper case");
        assert_eq!(upper, "invalid reference format: repository name (Nginx) must be lowercase");
    }
}
