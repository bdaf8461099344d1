//! `kloop image set`: creates or changes an Image object.

use crate::apiserver::create::create;
use crate::cli::cluster::change::change;
use crate::cli::cluster::targets::Target;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::manifests::key_changes;
use crate::cli::manifests::relative::{current_folder, record};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::image::{KIND, pattern, recipe};
use crate::object::{Key, Object};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Set the program that runs for an image on this machine.
///
/// Creates the Image object with that name, or changes the fields that the flags name. An empty
/// value removes a field. Values are split into words like in a shell.
#[derive(clap::Args)]
#[command(
    override_usage = "PATTERN [--from=RECIPE] [--entrypoint=WORDS] [--command=WORDS] [--env=KEY=VALUE] [--user=USER]",
    after_help = "\
# Every nginx is this program with these arguments
kloop image set nginx --entrypoint /usr/sbin/nginx --command \"-g 'daemon off;'\"

# A script of one's own, started again whenever it changes
kloop image set registry.example.com/team/web --entrypoint './web.py' --watch 'web.py' --watch 'templates/**'

# A program that is built first
kloop image set team/api:dev --name api --entrypoint ./target/debug/api --build 'cargo build' --watch 'src/**/*.rs'

# Pods that mount this image as a volume read the files of a folder
kloop image set registry.example.com/team/model:1 --files ./model

# The images of a team are PostgreSQL, as the recipe of that name says
kloop image set registry.example.com/team/db --from postgres

# Print the object without writing it
kloop image set postgres --from postgres --dry-run=client -o yaml"
)]
pub struct Args {
    /// PATTERN: an image, with * for any text.
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Name of the object. The default is the last part of the pattern, with preceding parts if
    /// that name is taken.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Start with this recipe: its name, or an image that it applies to. Other flags override its
    /// fields.
    #[arg(long, value_name = "RECIPE")]
    from: Option<String>,
    /// The program and its first arguments.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    entrypoint: Option<String>,
    /// The arguments for a container without any.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    command: Option<String>,
    /// A variable, KEY=VALUE; may be given several times. Other variables stay as they are.
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// The folder with the image's files, for pods that mount the image as a volume.
    #[arg(long, value_name = "FOLDER")]
    files: Option<String>,
    /// The working directory.
    #[arg(long, value_name = "FOLDER")]
    working_dir: Option<String>,
    /// The user that containers run as, when kloop runs as root.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// A port that the program listens on; may be given several times.
    #[arg(long, value_name = "PORT")]
    port: Vec<i32>,
    /// host for containers that read and change the machine's files, or private.
    #[arg(long, value_name = "WHICH")]
    filesystem: Option<String>,
    /// The command to run once before the first start; a line with shell operators is passed to sh
    /// -c.
    #[arg(long, value_name = "WORDS")]
    build: Option<String>,
    /// Files whose change restarts the containers; may be given several times.
    #[arg(long, value_name = "GLOB")]
    watch: Vec<String>,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    context.allow_new_cluster();
    let dry_run = args.change.dry_run(context)?;
    if let Err(why) = pattern::parse(&args.pattern) {
        return Err(Failure::plain(format!("invalid pattern {:?}: {why}", args.pattern)));
    }
    let fields = args.fields()?;
    if fields.is_empty() {
        let why = "nothing to set: give at least one of --from, --entrypoint, --command, --env, --files, --working-dir, --user, --port, \
                   --filesystem, --build and --watch is required";
        return Err(Failure::Usage("image set".into(), why.into()));
    }
    let (name, existing) = args.place(context)?;
    if let Some(object) = existing {
        let target = Target { kind: &KIND, object };
        let reply = change(context, &target, dry_run, |object| {
            args.fill(object, &fields);
            Ok(())
        })?;
        let done = if reply.changed { "configured" } else { "unchanged" };
        return args.change.print_change(context, &KIND, &reply.object, done, dry_run);
    }
    let mut object =
        Object(json!({"apiVersion": KIND.api_version(), "kind": KIND.kind, "metadata": {"name": name}, "spec": {}}));
    args.fill(&mut object, &fields);
    let options = context.options(Default::default(), dry_run);
    let object = match dry_run {
        DryRun::Client => object,
        _ => context.api()?.write(options.dry_run, |txn| create(txn, &KIND, &object, &options))?.into_object(),
    };
    args.change.print_change(context, &KIND, &object, "created", dry_run)
}

impl Args {
    /// Returns the object's name, and the object if it exists. Skips names that belong to another
    /// pattern, unless --name is given.
    fn place(&self, context: &mut CommandContext) -> CliResult<(String, Option<Object>)> {
        let names = self.name.clone().map_or_else(|| names_of(&self.pattern), |name| vec![name]);
        for name in names {
            let key = Key::new(KIND.resource, "", &name);
            let existing = context.read_view(|txn| Ok(crate::apiserver::read::get(txn, &key).ok()))?;
            let is_free = |object: &Object| object.items(&["spec", "patterns"]).contains(&json!(self.pattern));
            if self.name.is_some() || existing.as_ref().is_none_or(is_free) {
                return Ok((name, existing));
            }
        }
        Err(Failure::plain(format!(
            "every name for {:?} is taken by another Image object: choose a name with --name",
            self.pattern
        )))
    }

    /// Returns the fields that the flags set; null removes a field. The variables in `env` are
    /// merged by name.
    fn fields(&self) -> CliResult<Vec<(&'static str, Value)>> {
        let mut fields = self.recipe_fields()?;
        let mut words = |field: &'static str, flag: &str, text: &Option<String>| -> CliResult {
            if let Some(text) = text {
                let words = split(text)
                    .map_err(|why| Failure::plain(format!("invalid argument {text:?} for \"--{flag}\" flag: {why}")))?;
                fields.push((field, if words.is_empty() { Value::Null } else { json!(words) }));
            }
            Ok(())
        };
        words("entrypoint", "entrypoint", &self.entrypoint)?;
        words("command", "command", &self.command)?;
        match &self.build {
            Some(line) if needs_shell(line) => fields.push(("build", json!(["sh", "-c", line]))),
            line => words("build", "build", line)?,
        }
        for (field, value) in &mut fields {
            if *field == "build" && !value.is_null() {
                *value = json!({"command": value.take()});
            }
        }
        let texts = [
            ("files", &self.files),
            ("workingDir", &self.working_dir),
            ("user", &self.user),
            ("filesystem", &self.filesystem),
        ];
        for (field, text) in texts {
            let value = |text: &String| if text.is_empty() { Value::Null } else { json!(text) };
            fields.extend(text.as_ref().map(|text| (field, value(text))));
        }
        if !self.env.is_empty() {
            let env = key_changes::parse(&self.env, "env", false)?.set;
            fields.push(("env", env.into_iter().map(|(name, value)| (name, Value::from(value))).collect()));
        }
        if !self.port.is_empty() {
            fields.push(("ports", self.port.iter().map(|port| json!({"containerPort": port})).collect()));
        }
        if !self.watch.is_empty() {
            let globs: Vec<&String> = self.watch.iter().filter(|glob| !glob.is_empty()).collect();
            fields.push(("watch", if globs.is_empty() { Value::Null } else { json!(globs) }));
        }
        Ok(fields)
    }

    /// The fields of the recipe of `--from`.
    fn recipe_fields(&self) -> CliResult<Vec<(&'static str, Value)>> {
        let Some(name) = &self.from else { return Ok(Vec::new()) };
        let recipe = recipe::named(name).ok_or_else(|| {
            let names: Vec<&str> = recipe::builtin_recipes().iter().map(|recipe| recipe.name).collect();
            Failure::plain(format!("there is no recipe {name:?}; the recipes are: {}", names.join(", ")))
        })?;
        let spec = recipe.object.0["spec"].as_object().into_iter().flatten();
        let fields =
            spec.filter(|(field, _)| *field != "patterns").map(|(field, value)| (field.as_str(), value.clone()));
        Ok(fields.collect())
    }

    fn fill(&self, object: &mut Object, fields: &[(&str, Value)]) {
        let patterns = object.items(&["spec", "patterns"]).to_vec();
        if !patterns.iter().any(|existing| existing == &self.pattern) {
            object.set(&["spec", "patterns"], [patterns, vec![json!(self.pattern)]].concat());
        }
        for (field, value) in fields {
            match value {
                Value::Null => drop(object.unset(&["spec", field])),
                Value::Object(variables) if *field == "env" => set_variables(object, variables),
                value => object.set(&["spec", field], value.clone()),
            }
        }
        if let Some(here) = current_folder() {
            if object.text(&["spec", "workingDir"]).is_none() && self.names_files(Path::new(&here)) {
                object.set(&["spec", "workingDir"], ".");
            }
            record(object, &here);
        }
    }
}

impl Args {
    /// Whether an argument of the program is a file in this folder, so that the program has to
    /// start in it.
    fn names_files(&self, here: &Path) -> bool {
        let lines = [self.entrypoint.as_deref(), self.command.as_deref()];
        let words = lines.into_iter().flatten().flat_map(|line| split(line).unwrap_or_default());
        let values = words.map(|word| word.split_once('=').map_or(word.clone(), |(_, value)| value.to_owned()));
        let is_relative = |word: &String| !word.is_empty() && !word.starts_with(['/', '-']);
        values.filter(is_relative).any(|word| here.join(word).is_file())
    }
}

/// Sets variables by name, and leaves the others unchanged.
fn set_variables(object: &mut Object, variables: &Map<String, Value>) {
    let mut env = object.items(&["spec", "env"]).to_vec();
    for (name, value) in variables {
        let new = json!({"name": name, "value": value});
        match env.iter_mut().find(|existing| existing["name"] == **name) {
            Some(existing) => *existing = new,
            None => env.push(new),
        }
    }
    object.set(&["spec", "env"], env);
}

/// Returns candidate names: for `team/my_api:dev`, `my-api-dev` and then `team-my-api-dev`.
fn names_of(pattern: &str) -> Vec<String> {
    let text = pattern.split('@').next().unwrap_or(pattern).to_ascii_lowercase();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
    let named = |part: &str| {
        let name: String = part.chars().map(|letter| if plain(letter) { letter } else { '-' }).collect();
        name.trim_matches(['-', '.']).to_owned()
    };
    let text = text.trim_end_matches('/');
    let begins = text.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
    let mut names: Vec<String> = begins.map(|at| named(&text[at..])).filter(|name| !name.is_empty()).collect();
    names.dedup();
    if names.is_empty() { vec!["any".to_owned()] } else { names }
}

/// Whether a line contains shell syntax other than plain words.
fn needs_shell(text: &str) -> bool {
    let mut quote = None;
    text.chars().any(|letter| {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            _ => {}
        }
        quote != Some('\'') && matches!(letter, '$' | '`')
            || quote.is_none() && matches!(letter, ';' | '|' | '&' | '<' | '>')
    })
}

/// Splits words like a shell: at blanks, with quotes and backslashes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(letters.next()),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    match quote {
        Some(open) => Err(format!("a {open} is not closed")),
        None => Ok(words.into_iter().chain(word).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let table: [(&str, &[&str]); 6] = [
            ("", &[]),
            ("  a   b ", &["a", "b"]),
            ("-g 'daemon off;'", &["-g", "daemon off;"]),
            (r#"a\ b "c \" d" '' "$X""#, &["a b", "c \" d", "", "$X"]),
            ("a'b'c", &["abc"]),
            ("'\\'", &["\\"]),
        ];
        for (text, words) in table {
            assert_eq!(split(text).expect(text), words, "{text}");
        }
        assert_eq!(split("a 'b"), Err("a ' is not closed".into()));
    }

    #[test]
    fn objects_are_named_like_their_images() {
        for (pattern, name) in [
            ("nginx", "nginx"),
            ("ghcr.io/team/my_api:dev", "my-api-dev"),
            ("nginx:1.*", "nginx-1"),
            ("./server", "server"),
            ("*", "any"),
        ] {
            assert_eq!(names_of(pattern)[0], name);
        }
        assert_eq!(names_of("ghcr.io/team/api:dev"), ["api-dev", "team-api-dev", "ghcr.io-team-api-dev"]);
    }

    #[test]
    fn lines_for_a_shell_are_known() {
        let table = [
            ("cargo build --release", false),
            ("sh -c 'a; b > c'", false),
            ("a && b", true),
            ("a > b", true),
            ("echo \"$HOME\"", true),
        ];
        for (line, expected) in table {
            assert_eq!(needs_shell(line), expected, "{line}");
        }
    }
}
