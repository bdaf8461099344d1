//! Stories of running pods.

use super::{NAMESPACE, Told};
use anyhow::{Context, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, EvictParams, LogParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt, AsyncWriteExt, BufReader};

fn pods(client: Client) -> Api<Pod> {
    Api::namespaced(client, NAMESPACE)
}

pub async fn exec(client: Client) -> Told {
    let pods = pods(client);
    let script = "echo out; echo err >&2; exit 3";
    let mut process = pods.exec("web", ["sh", "-c", script], &AttachParams::default()).await?;
    let (mut out, mut err) = (String::new(), String::new());
    let status = process.take_status().context("a status")?;
    process.stdout().context("its output")?.read_to_string(&mut out).await?;
    process.stderr().context("its errors")?.read_to_string(&mut err).await?;
    ensure!((out.as_str(), err.as_str()) == ("out\n", "err\n"), "{out} {err}");
    let status = status.await.context("a status")?;
    let cause = status.details.and_then(|details| details.causes?.into_iter().next()).context("a cause")?;
    ensure!((cause.reason.as_deref(), cause.message.as_deref()) == (Some("ExitCode"), Some("3")), "{cause:?}");
    process.join().await?;
    // The end of the input arrives.
    let mut process = pods.exec("web", ["wc", "-c"], &AttachParams::default().stdin(true).stderr(false)).await?;
    let mut input = process.stdin().context("its input")?;
    input.write_all(&[b'x'; 100_000]).await?;
    input.shutdown().await?;
    drop(input);
    let mut out = String::new();
    process.stdout().context("its output")?.read_to_string(&mut out).await?;
    ensure!(out.trim() == "100000", "{out}");
    let status = process.take_status().context("a status")?.await.context("a status")?;
    ensure!(status.status.as_deref() == Some("Success"), "{status:?}");
    // A command that there is not.
    let mut process = pods.exec("web", ["no-such-program"], &AttachParams::default()).await?;
    let status = process.take_status().context("a status")?.await.context("a status")?;
    ensure!(status.status.as_deref() == Some("Failure"), "{status:?}");
    Ok(())
}

pub async fn attach(client: Client) -> Told {
    let options = AttachParams::default().stdin(true).stderr(false);
    let mut process = pods(client).attach("reader", &options).await?;
    let mut input = process.stdin().context("its input")?;
    let mut lines = BufReader::new(process.stdout().context("its output")?).lines();
    for word in ["one", "two"] {
        input.write_all(format!("{word}\n").as_bytes()).await?;
        ensure!(lines.next_line().await?.as_deref() == Some(format!("got {word}").as_str()));
    }
    process.abort();
    Ok(())
}

pub async fn forward(client: Client) -> Told {
    let mut forwarder = pods(client).portforward("web", &[8080, 8081]).await?;
    let mut stream = forwarder.take_stream(8080).context("a stream")?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    ensure!(page.ends_with("served\n"), "{page}");
    let error = forwarder.take_error(8081).context("errors")?.await;
    ensure!(error.as_ref().is_some_and(|error| error.contains("8081")), "{error:?}");
    forwarder.abort();
    Ok(())
}

pub async fn log(client: Client) -> Told {
    let pods = pods(client);
    let options = LogParams { container: Some("main".into()), tail_lines: Some(10), ..LogParams::default() };
    ensure!(pods.logs("web", &options).await?.lines().any(|line| line == "ready"));
    let mut lines = pods.log_stream("web", &LogParams { follow: true, ..options }).await?.lines();
    ensure!(lines.try_next().await?.as_deref() == Some("ready"));
    Ok(())
}

pub async fn evict(client: Client) -> Told {
    let pods = pods(client);
    let container = json!({"name": "main", "image": "busybox", "command": ["sleep", "1000"]});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "brief"}, "spec": spec}))?;
    let uid = pods.create(&PostParams::default(), &pod).await?.uid().context("a uid")?;
    await_condition(pods.clone(), "brief", conditions::is_pod_running()).await?;
    pods.evict("brief", &EvictParams::default()).await?;
    await_condition(pods, "brief", conditions::is_deleted(&uid)).await?;
    Ok(())
}
