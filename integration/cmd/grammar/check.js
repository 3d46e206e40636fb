// Reads {grammar, statements}, the latter a list of {name, text}, and writes a list
// of {name, error} for each text that the grammar does not take as a whole.
const { CharStreams, CommonTokenStream, Token } = require('antlr4ts');
const made = 'antlr4ts-sql/dist/src/grammar-output/';

// upper: the grammar has its words in capitals only. What is in quotes is raised with
// the rest, which changes no token's kind.
const grammars = {
  mysql: { lexer: 'mysql/MySQLLexer', parser: 'mysql/MultiQueryMySQLParser', rule: 'query' },
  tsql: { lexer: 'tsql/TSqlLexer', parser: 'tsql/TSqlParser', rule: 'tsql_file', upper: true },
  plsql: { lexer: 'plsql/PlSqlLexer', parser: 'plsql/PlSqlParser', rule: 'sql_script', upper: true },
};

const { grammar, statements } = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const { lexer: lexerFile, parser: parserFile, rule, upper } = grammars[grammar];
const load = (file) => require(made + file)[file.split('/')[1]];
const Lexer = load(lexerFile), Parser = load(parserFile);

function check(text) {
  let error = '';
  const listener = { syntaxError(_r, _o, line, column, message) { error = error || `${line}:${column}: ${message.slice(0, 200)}`; } };
  // Letter by letter, so that places in the text stay what they are.
  const given = upper ? text.replace(/[a-z]/g, (c) => c.toUpperCase()) : text;
  const lexer = new Lexer(CharStreams.fromString(given));
  const parser = new Parser(new CommonTokenStream(lexer));
  for (const part of [lexer, parser]) {
    part.serverVersion = 80200; // MySQL's
    part.removeErrorListeners();
    part.addErrorListener(listener);
  }
  parser[rule]();
  if (!error && parser.inputStream.LA(1) !== Token.EOF) {
    error = `it goes on with ${parser.currentToken.text}`;
  }
  return error;
}

const wrong = statements.map(({ name, text }) => ({ name, error: check(text) })).filter(({ error }) => error);
process.stdout.write(JSON.stringify(wrong));
