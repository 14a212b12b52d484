class RustorchCli < Formula
  desc "Runs GGUF language models on the best device of a machine"
  homepage "https://crates.io/crates/rustorch-cli"
  url "https://static.crates.io/crates/rustorch-cli/rustorch-cli-0.1.0.crate"
  # Of the package, when it is published: docs/installing.md.
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"rustorch-cli", "completions")
    system bin/"rustorch-cli", "man", "--out", buildpath/"man1"
    man1.install Dir[buildpath/"man1/*.1"]
  end

  test do
    assert_match "rustorch-cli #{version}", shell_output("#{bin}/rustorch-cli --version")
    # The bundled model goes on behind the prompt; processors may choose different words.
    text = shell_output("#{bin}/rustorch-cli -b cpu -p 'Once upon a time' -n 8 --temp 0")
    assert_match(/\AOnce upon a time\W+\w+/, text)
  end
end
