// Loaded before a program whose port is fixed: has it listen on PORT, on loopback alone.
import { Server } from "node:net";

const listen = Server.prototype.listen;
Server.prototype.listen = function (_, ...rest) {
  const ready = rest.find((argument) => typeof argument === "function");
  return listen.call(this, Number(process.env.PORT), "127.0.0.1", ready);
};
