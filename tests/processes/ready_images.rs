//! Recipes of common images: they are listed, and those whose program this machine has behave like the image.

use crate::cluster::{Cluster, signal};
use std::fs;
use std::path::Path;

/// Folders that recipes search for programs besides PATH.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    path.split(':').chain(FOLDERS).any(|folder| Path::new(folder).join(program).is_file())
        || versions.any(|version| version.path().join("bin").join(program).is_file())
}

/// Makes a cluster with a control plane when one of these programs exists; prints that the test is skipped otherwise.
fn cluster_for(image: &str, programs: &[&str]) -> Option<Cluster> {
    if programs.iter().any(|program| has(program)) {
        return Some(Cluster::new());
    }
    skip!("{image}: this machine has none of {}", programs.join(", "));
    None
}

/// Runs a pod of this image to completion; returns its output.
fn run(cluster: &Cluster, name: &str, image: &str, args: &str) -> String {
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, \
         spec: {{restartPolicy: Never, containers: [{{name: main, image: {image}, args: {args}}}]}}}}"
    ));
    cluster.until_reads(&format!("pod/{name}"), "{.status.phase}", "Succeeded");
    cluster.log(name, "main")
}

/// A StatefulSet `db` with one pod of this image, a claim at this path, and this command as its readiness probe.
fn database(image: &str, env: &str, path: &str, ready: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: db}}, spec: {{serviceName: db, selector: {{matchLabels: {{app: db}}}}, \
         volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}], \
         template: {{metadata: {{labels: {{app: db}}}}, spec: {{terminationGracePeriodSeconds: 20, containers: [{{name: main, image: {image}, \
         env: {env}, volumeMounts: [{{name: data, mountPath: {path}}}], \
         readinessProbe: {{exec: {{command: {ready}}}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 60}}}}]}}}}}}}}"
    )
}

/// Writes data into the database, and reads it after its process was killed, its pod deleted and its template changed.
fn data_survives(cluster: &Cluster, write: &[&str], read: &[&str], found: &str) {
    let said = |command: &[&str]| cluster.run(&[&["exec", "db-0", "--"], command].concat(), "");
    cluster.ready_pods("app=db", 1);
    cluster.until("the data is written", || said(write).code == 0);
    let is_there = |when: &str| cluster.until(when, || said(read).out.trim() == found);
    is_there("it is read");
    let restarts = || cluster.read("pod/db-0", "{.status.containerStatuses[0].restartCount}");
    signal(cluster.pid("db-0"), "KILL");
    cluster.until("the container was restarted", || restarts() == "1");
    cluster.ready_pods("app=db", 1);
    is_there("it is there after a restart");
    let uid = || cluster.read("pod/db-0", "{.metadata.uid}");
    let first = uid();
    cluster.ok("delete pod db-0");
    cluster.until("another pod exists", || !uid().is_empty() && uid() != first);
    cluster.ready_pods("app=db", 1);
    is_there("it is there in another pod");
    let second = uid();
    cluster.ok("rollout restart statefulset/db");
    cluster.ok("rollout status statefulset/db --timeout=120s");
    assert_ne!(uid(), second);
    is_there("it is there after a rollout");
}

#[test]
fn recipes_are_listed_and_create_image_objects() {
    let cluster = Cluster::new();
    let folder = format!("{}/fixtures/images", env!("CARGO_MANIFEST_DIR"));
    let listed = cluster.ok("image list --no-headers");
    let mut files = 0;
    for file in fs::read_dir(folder).expect("the recipes").flatten() {
        let name = file.file_name().to_string_lossy().trim_end_matches(".yaml").to_owned();
        assert!(
            listed.lines().any(|line| line.split_whitespace().next() == Some(&name)),
            "{name} is compiled in: {listed}"
        );
        files += 1;
    }
    assert_eq!(listed.lines().count(), files, "{listed}");
    let shell = listed.lines().find(|line| line.starts_with("busybox ")).expect("busybox");
    assert!(shell.split_whitespace().nth(2).is_some_and(|program| program.ends_with("/sh")), "{shell}");
    let lacking = listed.lines().find(|line| line.starts_with("minio "));
    assert!(has("minio") || lacking.is_some_and(|line| line.contains("<missing>")), "{listed}");
    cluster.ok("image set registry.example.com/team/db --from postgres --env POSTGRES_DB=shop");
    let made = |path: &str| cluster.read("image/db", path);
    let fields = ["{.spec.patterns[*]}", "{.spec.programs[*]}", "{.spec.env[*].value}"];
    assert_eq!(fields.map(made), ["registry.example.com/team/db", "postgres", "/var/lib/postgresql/data shop"]);
    cluster.ok("image set registry.example.com/team/db --env PGDATA=/data");
    assert_eq!(made("{.spec.env[*].value}"), "/data shop", "other variables stay");
    assert!(made("{.spec.entrypoint[2]}").contains("initdb"));
    let unknown = cluster.kloop("image set x --from nosuch");
    assert!(
        unknown.code == 1 && unknown.err.contains("there is no recipe \"nosuch\"; the recipes are: busybox, "),
        "{}",
        unknown.err
    );
}

#[test]
fn scripts_for_busybox_run_in_its_shell() {
    let Some(cluster) = cluster_for("busybox", &["busybox", "bash"]) else { return };
    let _plane = cluster.watch();
    let script = "text=a.b; [[ $text == a.* ]] && echo -e \"${text//./,}\\\\t$0\"; head -c 2 /proc/$$$$/cmdline; :";
    // Without a last command of its own, bash would execute head in its place.
    let written = run(&cluster, "script", "alpine:3.20", &format!("[sh, -c, {script:?}]"));
    assert_eq!(written, "a,b\tsh\nsh\n", "also ps shows the shell by its name");
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: idle}, spec: {containers: [{name: main, image: busybox, command: [/bin/sh, -c, 'sleep 1000'], \
         readinessProbe: {exec: {command: [sh, -c, '[[ -e / ]]']}, periodSeconds: 1}}]}}",
    );
    cluster.ok("wait pod/idle --for=condition=Ready --timeout=60s");
    assert_eq!(cluster.run(&["exec", "idle", "--", "ash", "-c", "[[ -e / ]] && echo -e 'a\\tb'"], "").out, "a\tb\n");
}

#[test]
fn applets_of_busybox_run_as_commands_that_the_machine_lacks() {
    let Some(cluster) = cluster_for("busybox", &["busybox"]) else { return };
    let _plane = cluster.watch();
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: busybox, \
         command: [httpd, -f, -p, '127.0.0.1:8080', -h, /]}]}}",
    );
    cluster.ok("wait pod/web --for=condition=Ready --timeout=60s");
    let status = cluster.ok("exec web -- /bin/wget -q -O - http://127.0.0.1:8080/etc/hostname");
    assert_eq!(status.trim(), "web");
    let unknown = cluster.kloop("exec web -- nosuch");
    assert!(unknown.err.contains("exec: \"nosuch\": executable file not found in $PATH"), "{}", unknown.err);
}

#[test]
fn interpreters_run_their_args_as_the_images_do() {
    let table = [
        ("node:20", "node", "[-p, 6*7]", "42\n"),
        ("node:20", "node", "[node, -p, 6*7]", "42\n"),
        ("node:20", "node", "[sh, -c, echo $((6*7))]", "42\n"),
        ("python:3.12", "python3", "[python, -c, 'import os; print(6*7, os.environ[\"PYTHONUNBUFFERED\"])']", "42 1\n"),
        ("python:3.12", "python3", "[sh, -c, echo $((6*7))]", "42\n"),
        ("busybox:1.36", "sh", "[echo, hello]", "hello\n"),
        ("docker.io/library/debian:12", "bash", "[bash, -c, echo hello]", "hello\n"),
        ("ruby:3", "ruby", "[ruby, -e, puts 6*7]", "42\n"),
        ("php:8-cli", "php", "[-r, echo 6*7;]", "42"),
        ("redis:7", "redis-server", "[redis-cli, --version]", "redis-cli "),
        ("postgres:16", "postgres", "[psql, --version]", "psql (PostgreSQL) "),
        ("postgres:16", "postgres", "[--version]", "postgres (PostgreSQL) "),
        ("mysql:8", "mariadbd", "[mysql, --version]", "mysql "),
    ];
    let cluster = Cluster::new();
    let _plane = cluster.watch();
    for (number, (image, program, args, said)) in table.into_iter().enumerate() {
        match has(program) {
            true => {
                let found = run(&cluster, &format!("run-{number}"), image, args);
                assert!(found.starts_with(said), "{image} {args}: {found}");
            }
            false => skip!("{image}: this machine has no {program}"),
        }
    }
}

#[test]
fn postgres_keeps_its_data_in_a_claim() {
    let Some(cluster) = cluster_for("postgres", &["postgres"]) else { return };
    let _plane = cluster.watch();
    cluster.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: init}, data: {schema.sql: 'create table t (a int); insert into t values (5);'}}",
    );
    let env = "[{name: POSTGRES_PASSWORD, value: s3cret}, {name: POSTGRES_USER, value: shop}, {name: POSTGRES_DB, value: goods}]";
    let set =
        database("'postgres:16'", env, "/var/lib/postgresql/data", "[pg_isready, -U, shop, -d, goods, -h, 127.0.0.1]")
            .replace("volumeMounts: [", "volumeMounts: [{name: init, mountPath: /docker-entrypoint-initdb.d}, ")
            .replace(
                "spec: {terminationGrace",
                "spec: {volumes: [{name: init, configMap: {name: init}}], terminationGrace",
            );
    cluster.apply(&set);
    let psql = |query: &'static str| ["psql", "-U", "shop", "goods", "-Atc", query];
    data_survives(&cluster, &psql("insert into t values (37)"), &psql("select sum(a) from t"), "42");
    // Other pods need the password.
    let address = cluster.read("pod/db-0", "{.status.podIP}");
    let ask = |password: &str| {
        let line = format!("PGPASSWORD={password} psql -h {address} -U shop goods -Atc 'select 6*7'");
        cluster.run(
            &["run", "ask", "--rm", "-i", "-q", "--restart=Never", "--image=postgres", "--", "sh", "-c", &line],
            "",
        )
    };
    assert_eq!(ask("s3cret").out.lines().next(), Some("42"));
    let wrong = ask("wrong");
    assert!(
        format!("{}{}", wrong.out, wrong.err).contains("password authentication failed"),
        "{}{}",
        wrong.out,
        wrong.err
    );
    cluster.ok("delete statefulset db");
    cluster.nothing_is_left();
}

#[test]
fn postgres_without_a_claim_or_a_password_behaves_like_the_image() {
    let Some(cluster) = cluster_for("postgres", &["postgres"]) else { return };
    let _plane = cluster.watch();
    let pod = |name: &str, env: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 5, \
             containers: [{{name: main, image: postgres, env: {env}, \
             readinessProbe: {{exec: {{command: [pg_isready, -h, 127.0.0.1]}}, periodSeconds: 1, failureThreshold: 60}}}}]}}}}"
        )
    };
    cluster.apply(&pod("mute", "[]"));
    cluster.until("the log says what is missing", || {
        cluster
            .log("mute", "main")
            .contains("Error: Database is uninitialized and superuser password is not specified.")
    });
    cluster.apply(&pod("open", "[{name: POSTGRES_HOST_AUTH_METHOD, value: trust}]"));
    cluster.ready_pods("app=open", 1);
    let psql = |query: &str| cluster.run(&["exec", "open", "--", "psql", "-U", "postgres", "-Atc", query], "");
    assert_eq!(psql("create table t (a int)").code, 0);
    signal(cluster.pid("open"), "KILL");
    cluster.until_reads("pod/open", "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ready_pods("app=open", 1);
    assert!(
        psql("select * from t").err.contains("relation \"t\" does not exist"),
        "the data is gone with the container"
    );
    cluster.ok("delete pod mute open");
    cluster.nothing_is_left();
}

#[test]
fn redis_keeps_its_data_in_a_claim_and_accepts_other_pods() {
    let Some(cluster) = cluster_for("redis", &["redis-server"]) else { return };
    let _plane = cluster.watch();
    let set = database("'redis:7'", "[]", "/data", "[redis-cli, -p, '6390', ping]")
        .replace("env: []", "args: [redis-server, --port, '6390', --appendonly, 'yes', --appendfsync, always]");
    cluster.apply(&set);
    data_survives(
        &cluster,
        &["redis-cli", "-p", "6390", "set", "k", "v"],
        &["redis-cli", "-p", "6390", "get", "k"],
        "v",
    );
    let address = cluster.read("pod/db-0", "{.status.podIP}");
    let said = run(&cluster, "other", "redis", &format!("[redis-cli, -h, {address}, -p, '6390', get, k]"));
    assert_eq!(said, "v\n");
    cluster.ok("delete pod/other statefulset/db");
    cluster.nothing_is_left();
}

#[test]
fn mysql_keeps_its_data_in_a_claim() {
    let Some(cluster) = cluster_for("mysql", &["mysqld", "mariadbd"]) else { return };
    let _plane = cluster.watch();
    let env = "[{name: MYSQL_ROOT_PASSWORD, value: s3'cret}, {name: MYSQL_DATABASE, value: goods}, {name: MYSQL_USER, value: shop}, \
               {name: MYSQL_PASSWORD, value: pw}]";
    cluster.apply(&database(
        "'mysql:8'",
        env,
        "/var/lib/mysql",
        "[mysql, -h127.0.0.1, -ushop, -ppw, goods, -e, select 1]",
    ));
    let mysql = |query: &'static str| ["mysql", "-uroot", "-ps3'cret", "goods", "-Ne", query];
    data_survives(
        &cluster,
        &mysql("create table if not exists t (a int); insert into t values (42)"),
        &mysql("select max(a) from t"),
        "42",
    );
    cluster.ok("delete statefulset db");
    cluster.nothing_is_left();
}

#[test]
fn nginx_serves_the_pages_and_sites_of_its_image() {
    let Some(cluster) = cluster_for("nginx", &["nginx"]) else { return };
    let _plane = cluster.watch();
    let site = "server { listen 8080; location / { root /usr/share/nginx/html; } location /own { return 200 yes; } }";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: web}}, data: {{index.html: hello, site.conf: '{site}'}}}}\n---\n\
         {{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{app: web}}}}, spec: {{terminationGracePeriodSeconds: 5, \
         volumes: [{{name: web, configMap: {{name: web}}}}], containers: [{{name: main, image: 'nginx:1.27', \
         volumeMounts: [{{name: web, mountPath: /usr/share/nginx/html}}, {{name: web, mountPath: /etc/nginx/conf.d}}], \
         readinessProbe: {{httpGet: {{port: 8080, path: /}}, periodSeconds: 1, failureThreshold: 60}}}}]}}}}"
    ));
    cluster.ready_pods("app=web", 1);
    let address = cluster.read("pod/web", "{.status.podIP}");
    let page = |path: &str| {
        let answer = ureq::get(format!("http://{address}:8080{path}")).call();
        answer.ok().and_then(|mut answer| answer.body_mut().read_to_string().ok()).unwrap_or_default()
    };
    assert_eq!((page("/index.html"), page("/own")), ("hello".to_owned(), "yes".to_owned()));
    cluster.until("the request is in the log", || cluster.log("web", "main").contains("GET /own"));
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}

#[test]
fn nginx_starts_with_a_read_only_root() {
    let Some(cluster) = cluster_for("nginx", &["nginx"]) else { return };
    let _plane = cluster.watch();
    cluster.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, \
         volumes: [{name: cache, emptyDir: {}}, {name: run, emptyDir: {}}], containers: [{name: main, image: 'nginx:1.27', \
         securityContext: {readOnlyRootFilesystem: true}, \
         volumeMounts: [{name: cache, mountPath: /var/cache/nginx}, {name: run, mountPath: /var/run}], \
         readinessProbe: {httpGet: {port: 80, path: /}, periodSeconds: 1, failureThreshold: 60}}]}}",
    );
    cluster.ready_pods("app=web", 1);
    cluster.ok("delete pod web");
    cluster.nothing_is_left();
}

#[test]
fn servers_listen() {
    let table: [(&str, &[&str], u16); 6] = [
        ("nginx", &["nginx"], 80),
        ("nginxinc/nginx-unprivileged", &["nginx"], 8080),
        ("httpd", &["httpd", "apache2"], 80),
        ("memcached", &["memcached"], 11211),
        ("rabbitmq", &["rabbitmq-server"], 5672),
        ("caddy", &["caddy"], 80),
    ];
    for (image, programs, port) in table {
        let Some(cluster) = cluster_for(image, programs) else { continue };
        let _plane = cluster.watch();
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: serve, labels: {{app: serve}}}}, \
             spec: {{terminationGracePeriodSeconds: 5, containers: [{{name: main, image: {image}, \
             readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1, failureThreshold: 60}}}}]}}}}"
        ));
        cluster.ready_pods("app=serve", 1);
        cluster.ok("delete pod serve");
        cluster.nothing_is_left();
    }
}

#[test]
fn mariadb_has_the_health_check_of_its_image() {
    if !rustix::process::geteuid().is_root() {
        return skip!("only root's containers may write to /usr/local/bin, where the image has its health check");
    }
    let Some(cluster) = cluster_for("mariadb", &["mariadbd"]) else { return };
    let _plane = cluster.watch();
    let env = "[{name: MARIADB_RANDOM_ROOT_PASSWORD, value: '1'}]";
    let check = "[healthcheck.sh, --connect, --innodb_initialized]";
    cluster.apply(&database("'mariadb:11'", env, "/var/lib/mysql", check));
    cluster.ready_pods("app=db", 1);
    let said = cluster.kloop("exec db-0 -- healthcheck.sh --connect --nonsense");
    assert_eq!(said.err.lines().next(), Some("healthcheck.sh: unknown check --nonsense"), "{}", said.err);
    // The login is stored with the data.
    signal(cluster.pid("db-0"), "KILL");
    cluster.until_reads("pod/db-0", "{.status.containerStatuses[0].restartCount}", "1");
    cluster.ready_pods("app=db", 1);
    assert!(!Path::new("/usr/local/bin/healthcheck.sh").exists(), "the file is in the container only");
    cluster.ok("delete statefulset db");
    cluster.nothing_is_left();
}
