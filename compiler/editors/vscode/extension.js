// Starts `hccc lsp` for programs, jobs and clusters.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const settings = workspace.getConfiguration("hccc");
  const [command, ...args] = settings.get("command");
  client = new LanguageClient(
    "hccc",
    "hccc",
    { command, args },
    {
      documentSelector: [{ language: "rccl" }, { language: "hccc-cluster" }],
      initializationOptions: settings,
      synchronize: { configurationSection: "hccc" },
    },
  );
  await client.start();
};

exports.deactivate = () => client?.stop();
