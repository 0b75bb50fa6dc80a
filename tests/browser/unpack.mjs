// Unpacks the browser beside this file, with the libraries that it needs: a machine may have none of them.

import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("unpacked", import.meta.url));
mkdirSync(folder, { recursive: true });
process.env.TMPDIR = folder; // where the package unpacks to
process.env.AWS_EXECUTION_ENV = "AWS_Lambda_nodejs22.x"; // has it unpack the libraries too
const { default: chromium } = await import("@sparticuz/chromium");
await chromium.executablePath();
