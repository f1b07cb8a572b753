// Copies the command. The clipboard can be refused, from disk more often than from a server: the
// text is then selected, so that the reader's own keys copy it.

function startCommand() {
  const button = byId("copy");
  button?.addEventListener("click", async () => {
    const command = byId("command");
    try {
      await navigator.clipboard.writeText(command.textContent);
      byId("copied").textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      byId("copied").textContent = "Selected: copy it with Ctrl+C";
    }
  });
}
