//! `kloop auth whoami`: prints the user as whom commands act.
//!
//! Start reading at [`run`].

use super::server_reviews;
use crate::apiserver::user::User;
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext};
use crate::show::columns;
use serde_json::{Value, json};
use std::fmt::Write;

/// Check self subject attributes.
///
/// Commands act as the administrator, or as the user of --as.
#[derive(clap::Args)]
#[command(after_help = "\
# Get your subject attributes
kloop auth whoami

# Get the attributes of another user in JSON format
kloop auth whoami --as=jane --as-group=devs -o json")]
pub struct Args {
    #[command(flatten)]
    print: PrintFlags,
    /// Ignored, as kubectl does.
    #[arg(hide = true)]
    _surplus: Vec<String>,
}

/// Prints the user.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    let user = match server_reviews::ask_user(context)? {
        Some(info) => user_of_info(&info),
        None => User::clone(&context.user()),
    };
    if let Some(mut printer) = args.print.answer_printer()? {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
            "status": {"userInfo": user.info()},
        });
        return context.print(&printer.object(&review)?);
    }
    let mut text = format!("ATTRIBUTE\tVALUE\nUsername\t{}\n", user.name);
    if !user.uid.is_empty() {
        let _ = writeln!(text, "UID\t{}", user.uid);
    }
    if !user.groups.is_empty() {
        let _ = writeln!(text, "Groups\t[{}]", user.groups.join(" "));
    }
    for (name, values) in &user.extra {
        let _ = writeln!(text, "Extra: {name}\t[{}]", values.join(" "));
    }
    context.print(&columns::align(&text, columns::TABLE))
}

/// Reads the user of a server's answer.
fn user_of_info(info: &Value) -> User {
    let text = |field: &str| info[field].as_str().unwrap_or_default();
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
    };
    let extra = info["extra"].as_object().into_iter().flatten().map(|(name, values)| (name.clone(), texts(values)));
    User {
        name: text("username").to_owned(),
        uid: text("uid").to_owned(),
        groups: texts(&info["groups"]),
        extra: extra.collect(),
    }
}
