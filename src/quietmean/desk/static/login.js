// The link of the command line ends in #TOKEN, which the browser keeps to itself: it is put into the form and sent once.
const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("token").value = token;
  document.getElementById("login").submit();
}
