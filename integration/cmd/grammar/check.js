// Reads a JSON list of {name, text}, and writes one of {name, error} for each text
// that MySQL's grammar does not take as a whole.
const { CharStreams, CommonTokenStream, Token } = require('antlr4ts');
const grammar = 'antlr4ts-sql/dist/src/grammar-output/mysql/';
const { MySQLLexer } = require(grammar + 'MySQLLexer');
const { MultiQueryMySQLParser } = require(grammar + 'MultiQueryMySQLParser');

function check(text) {
  let error = '';
  const listener = { syntaxError(_r, _o, line, column, message) { error = error || `${line}:${column}: ${message}`; } };
  const lexer = new MySQLLexer(CharStreams.fromString(text));
  const parser = new MultiQueryMySQLParser(new CommonTokenStream(lexer));
  for (const part of [lexer, parser]) {
    part.serverVersion = 80200;
    part.removeErrorListeners();
    part.addErrorListener(listener);
  }
  parser.query();
  if (!error && parser.inputStream.LA(1) !== Token.EOF) {
    error = `it goes on with ${parser.currentToken.text}`;
  }
  return error;
}

const statements = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const wrong = statements.map(({ name, text }) => ({ name, error: check(text) })).filter(({ error }) => error);
process.stdout.write(JSON.stringify(wrong));
