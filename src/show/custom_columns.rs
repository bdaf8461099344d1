//! `-o custom-columns=NAME:.metadata.name,...`.

use super::{columns, escape};
use crate::go::fmt;
use crate::go::jsonpath::JsonPathTemplate;
use serde_json::Value;

/// The columns of `-o custom-columns`.
#[derive(Clone, Debug)]
pub struct UserColumns {
    columns: Vec<(String, JsonPathTemplate)>,
    headers_due: bool,
}

impl UserColumns {
    /// Parses `HEADER:PATH,HEADER:PATH`.
    pub fn parse(spec: &str, no_headers: bool) -> Result<UserColumns, String> {
        if spec.is_empty() {
            return Err("custom-columns format specified but no custom columns given".into());
        }
        let columns: Result<Vec<_>, String> = spec.split(',').map(column).collect();
        Ok(UserColumns { columns: columns?, headers_due: !no_headers })
    }

    /// Parses a file of two lines: the headers, and their paths.
    pub fn parse_file(text: &str, no_headers: bool) -> Result<UserColumns, String> {
        let mut lines = text.lines();
        let headers: Vec<&str> = lines.next().ok_or("template was empty")?.split_whitespace().collect();
        let missing = "unexpected EOF, expected field specifications";
        let paths: Vec<&str> = lines.next().ok_or(missing)?.split_whitespace().collect();
        if headers.len() != paths.len() {
            let (headers, paths) = (headers.len(), paths.len());
            return Err(format!("number of headers ({headers}) and field specifications ({paths}) don't match"));
        }
        let pairs = headers.into_iter().zip(paths);
        let columns: Result<Vec<_>, String> =
            pairs.map(|(header, path)| Ok((header.to_owned(), JsonPathTemplate::parse_relaxed(path)?))).collect();
        Ok(UserColumns { columns: columns?, headers_due: !no_headers })
    }

    /// Formats the rows of some objects. The first call also prints the headers.
    pub fn print(&mut self, objects: &[&Value]) -> Result<String, String> {
        let mut text = String::new();
        if std::mem::take(&mut self.headers_due) {
            let headers: Vec<String> = self.columns.iter().map(|(header, _)| escape::cell(header)).collect();
            text.push_str(&headers.join("\t"));
            text.push('\n');
        }
        for object in objects {
            let cells: Result<Vec<String>, String> = self.columns.iter().map(|(_, path)| cell(path, object)).collect();
            text.push_str(&cells?.join("\t"));
            text.push('\n');
        }
        Ok(columns::align(&text, columns::TABLE))
    }
}

fn column(spec: &str) -> Result<(String, JsonPathTemplate), String> {
    let (header, path) = spec
        .split_once(':')
        .ok_or_else(|| format!("unexpected custom-columns spec: {spec}, expected <header>:<json-path-expr>"))?;
    Ok((header.to_owned(), JsonPathTemplate::parse_relaxed(path)?))
}

fn cell(path: &JsonPathTemplate, object: &Value) -> Result<String, String> {
    let found: Vec<String> = path.results(object)?.into_iter().flatten().map(|value| fmt::plain(&value)).collect();
    Ok(if found.is_empty() { "<none>".into() } else { escape::text(&found.join(",")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_follow_the_headers() {
        let alpha = json!({"metadata": {"name": "alpha", "labels": {"b": "2", "a": "1"}}, "spec": {"containers": [{"image": "x:1"}, {"image": "y:2"}]}});
        let beta = json!({"metadata": {"name": "beta"}, "spec": {"n": 7, "containers": [{"image": "z"}]}});
        let spec = "NAME:.metadata.name,L:metadata.labels,IMGS:{.spec.containers[*].image},N:.spec.n";
        let mut columns = UserColumns::parse(spec, false).unwrap();
        let expected = "NAME    L              IMGS      N\nalpha   map[a:1 b:2]   x:1,y:2   <none>\nbeta    <none>         z         7\n";
        assert_eq!(columns.print(&[&alpha, &beta]).unwrap(), expected);
        assert_eq!(columns.print(&[&beta]).unwrap(), "beta   <none>   z     7\n");
        let lines = json!({"metadata": {"name": "gamma"}, "spec": {"containers": [{"image": "one\ntwo\u{1b}[31m"}]}});
        assert_eq!(columns.print(&[&lines]).unwrap(), "gamma       <none>   one\ntwo^[[31m   <none>\n");
        let mut columns = UserColumns::parse_file("N   I\nmetadata.name spec.containers[0].image\n", true).unwrap();
        assert_eq!(columns.print(&[&alpha]).unwrap(), "alpha   x:1\n");
    }

    #[test]
    fn malformed_columns_are_refused() {
        let refuse = |spec| UserColumns::parse(spec, false).unwrap_err();
        assert_eq!(refuse(""), "custom-columns format specified but no custom columns given");
        assert_eq!(refuse("X"), "unexpected custom-columns spec: X, expected <header>:<json-path-expr>");
        assert!(UserColumns::parse_file("A B\nx\n", false).unwrap_err().contains("(2) and field specifications (1)"));
    }
}
