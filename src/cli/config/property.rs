//! `kloop config set` and `unset`: single values of the file of contexts.

use super::context_entries::{check_namespace, set_current};
use super::loaded::{LoadedConfig, put, unexpected};
use crate::cli::cluster::contexts::{ConfigFile, Entries};
use crate::cli::command_line::flags;
use crate::cli::{CliResult, CommandContext, Failure};
use base64::DecodeError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Set an individual value in a kubeconfig file.
///
/// PROPERTY_NAME is a dot delimited name where each token represents either an attribute name or a map key. Map keys may not
/// contain dots. PROPERTY_VALUE is the new value you want to set. Binary fields such as 'certificate-authority-data' expect a
/// base64 encoded string unless the --set-raw-bytes flag is used.
#[derive(clap::Args)]
#[command(
    override_usage = "PROPERTY_NAME PROPERTY_VALUE",
    after_help = "\
# Use the namespace \"backend\" when none is asked for
kloop config set contexts.default.namespace backend

# Let contexts with the user ann have the rights of ann
kloop config set users.ann.as ann"
)]
pub struct SetArgs {
    /// The property and its value.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// When writing a []byte PROPERTY_VALUE, write the given string directly without base64 decoding.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    set_raw_bytes: Option<bool>,
}

/// Unset an individual value in a kubeconfig file.
///
/// PROPERTY_NAME is a dot delimited name where each token represents either an attribute name or a map key. Map keys may not
/// contain dots.
#[derive(clap::Args)]
#[command(
    override_usage = "PROPERTY_NAME",
    after_help = "\
# Unset the current-context
kloop config unset current-context

# Use the namespace \"default\" again
kloop config unset contexts.default.namespace"
)]
pub struct UnsetArgs {
    /// The property.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
}

/// A value that an entry can have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FieldType {
    Text,
    Switch,
    Bytes,
    /// More than one value; only `unset` accepts this.
    Compound,
}

/// The fields of clusters, contexts and users.
const FIELDS: [(&str, &[(&str, FieldType)]); 3] = [
    (
        "clusters",
        &[
            ("certificate-authority", FieldType::Text),
            ("certificate-authority-data", FieldType::Bytes),
            ("disable-compression", FieldType::Switch),
            ("extensions", FieldType::Compound),
            ("insecure-skip-tls-verify", FieldType::Switch),
            ("proxy-url", FieldType::Text),
            ("server", FieldType::Text),
            ("tls-server-name", FieldType::Text),
        ],
    ),
    (
        "contexts",
        &[
            ("cluster", FieldType::Text),
            ("extensions", FieldType::Compound),
            ("namespace", FieldType::Text),
            ("user", FieldType::Text),
        ],
    ),
    (
        "users",
        &[
            ("as", FieldType::Text),
            ("as-groups", FieldType::Compound),
            ("as-uid", FieldType::Text),
            ("as-user-extra", FieldType::Compound),
            ("auth-provider", FieldType::Compound),
            ("client-certificate", FieldType::Text),
            ("client-certificate-data", FieldType::Bytes),
            ("client-key", FieldType::Text),
            ("client-key-data", FieldType::Bytes),
            ("exec", FieldType::Compound),
            ("extensions", FieldType::Compound),
            ("password", FieldType::Text),
            ("token", FieldType::Text),
            ("tokenFile", FieldType::Text),
            ("username", FieldType::Text),
        ],
    ),
];

/// A parsed property.
#[derive(Debug, PartialEq)]
enum Property {
    Current,
    /// A whole list.
    List(&'static str),
    /// An entry of a list.
    Entry(&'static str, String),
    /// A field of an entry.
    Field(&'static str, String, &'static str, FieldType),
}

/// Parses `contexts.NAME.namespace`. A name may have dots: it ends before the first field.
fn parse(text: &str) -> CliResult<Property> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts[..] == ["current-context"] {
        return Ok(Property::Current);
    }
    let Some((list, fields)) = FIELDS.iter().find(|(list, _)| *list == parts[0]) else {
        return Err(Failure::plain(format!("unable to parse {text} after [] at api.Config")));
    };
    // kubectl has these names inside, and others in the file.
    let stored = |part: &str| part.strip_prefix("act-").unwrap_or(part).to_owned();
    let field = |part: &str| fields.iter().find(|(name, _)| *name == stored(part));
    let found = parts.iter().enumerate().skip(2).find_map(|(index, part)| Some((index, field(part)?)));
    match found {
        None if parts.len() == 1 => Ok(Property::List(list)),
        None => Ok(Property::Entry(list, parts[1..].join("."))),
        Some((index, _)) if index + 1 < parts.len() => {
            Err(Failure::plain(format!("unable to parse one or more field values of {text}")))
        }
        Some((index, (name, kind))) => Ok(Property::Field(list, parts[1..index].join("."), name, *kind)),
    }
}

fn entries<'a>(file: &'a mut ConfigFile, list: &str) -> &'a mut Entries {
    match list {
        "clusters" => &mut file.clusters,
        "contexts" => &mut file.contexts,
        _ => &mut file.users,
    }
}

/// Sets a property.
pub fn set(args: &SetArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [text, value] = &args.words[..] else { return Err(unexpected(&args.words)) };
    if value.is_empty() {
        return Err(Failure::plain("you cannot use set to unset a property"));
    }
    match parse(text)? {
        Property::Current => set_current(value, config, context)?,
        Property::List(_) | Property::Entry(..) => {
            return Err(Failure::plain(format!("can't set a map to a value: {text} has fields of its own")));
        }
        Property::Field(list, name, field, kind) => {
            if field == "namespace" {
                check_namespace(Some(value))?;
            }
            let value: Value = match kind {
                FieldType::Text => value.clone().into(),
                FieldType::Switch => flags::boolean(value).map_err(Failure::plain)?.into(),
                FieldType::Bytes if args.set_raw_bytes == Some(true) => STANDARD.encode(value).into(),
                FieldType::Bytes => check_bytes(value)?.into(),
                FieldType::Compound => {
                    return Err(Failure::plain(format!("unable to parse one or more field values of {text}")));
                }
            };
            if !change_own(list, &name, field, value.as_str().unwrap_or_default(), config, context)? {
                config.change(|file| {
                    entries(file, list).entry(name).or_default().insert(field.to_owned(), value);
                    Ok(())
                })?;
            }
        }
    }
    context.print_line(&format!("Property {text:?} set."))
}

/// Unsets a property.
pub fn unset(args: &UnsetArgs, config: &LoadedConfig, context: &mut CommandContext) -> CliResult {
    let [text] = &args.words[..] else { return Err(unexpected(&args.words)) };
    match parse(text)? {
        Property::Current => config.change(|file| {
            file.current.clear();
            Ok(())
        })?,
        Property::List(list) => config.change(|file| {
            entries(file, list).clear();
            Ok(())
        })?,
        Property::Entry(list, name) => config.change(|file| {
            entries(file, list).remove(&name);
            Ok(())
        })?,
        Property::Field(list, name, field, _) => {
            if !change_own(list, &name, field, "", config, context)? {
                config.change(|file| {
                    let Some(entry) = entries(file, list).get_mut(&name) else {
                        return Err(Failure::plain(format!("current map key `{name}` is invalid")));
                    };
                    put(entry, field, Some(""));
                    Ok(())
                })?;
            }
        }
    }
    context.print_line(&format!("Property {text:?} unset."))
}

/// Changes the namespace of the context without an entry, and refuses its other fields. Returns false for other contexts.
fn change_own(
    list: &str,
    name: &str,
    field: &str,
    value: &str,
    config: &LoadedConfig,
    context: &mut CommandContext,
) -> CliResult<bool> {
    let is_in_file = list == "clusters" && config.file.clusters.contains_key(name);
    match config.own(name).filter(|_| list != "users" && !is_in_file) {
        None => Ok(false),
        Some(_) if (list, field) == ("contexts", "namespace") => {
            context.set_default_namespace(value)?;
            Ok(true)
        }
        Some(own) => Err(config.refuse_own(&format!("change {list}.{name}.{field}"), own)),
    }
}

fn check_bytes(text: &str) -> CliResult<String> {
    let decoded = STANDARD.decode(text).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            _ => text.len(),
        };
        Failure::plain(format!("error decoding input value: illegal base64 data at input byte {at}"))
    })?;
    Ok(STANDARD.encode(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_parsed_as_kubectl_parses_them() {
        let field = |list, name: &str, field, kind| Property::Field(list, name.to_owned(), field, kind);
        for (text, expected) in [
            ("current-context", Property::Current),
            ("clusters", Property::List("clusters")),
            ("contexts.a", Property::Entry("contexts", "a".into())),
            ("contexts.a.namespace", field("contexts", "a", "namespace", FieldType::Text)),
            (
                "clusters.10.0.0.1.insecure-skip-tls-verify",
                field("clusters", "10.0.0.1", "insecure-skip-tls-verify", FieldType::Switch),
            ),
            ("users.a.act-as", field("users", "a", "as", FieldType::Text)),
            ("users.a.as-uid", field("users", "a", "as-uid", FieldType::Text)),
        ] {
            assert_eq!(parse(text).ok(), Some(expected), "{text}");
        }
        for (text, error) in [
            ("a", "error: unable to parse a after [] at api.Config"),
            ("contexts.a.user.b", "error: unable to parse one or more field values of contexts.a.user.b"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error);
        }
    }
}
